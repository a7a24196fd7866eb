package sqlstore

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/onward-go/outbox/persistence"
)

// A batch goes to the server as two arguments, however many records it has:
// one JSON array that the statement takes apart, and all payloads end to end.
// So there is one statement text, prepared once, and no limit on arguments.

// mostKeys bounds the keys of one argument, which a server takes up to a size:
// whatever grows with what there is to do goes in pages.
const mostKeys = 1000

type jsonRecord struct {
	ID            string `json:"id"`
	AccountID     string `json:"account_id"`
	AggregateType string `json:"aggregate_type"`
	AggregateID   string `json:"aggregate_id"`
	EventType     string `json:"event_type"`
	Start         int    `json:"start"`
	Size          int    `json:"size"`
}

type jsonKey struct {
	Micros  int64  `json:"micros"`
	At      string `json:"at"` // the same, for MySQL
	ID      string `json:"id"`
	Handler string `json:"handler,omitempty"`
}

type jsonSubscription struct {
	EventType string `json:"event_type"`
	Handler   string `json:"handler"`
}

type jsonBucket struct {
	Micros int64  `json:"micros"`
	At     string `json:"at"` // the same, for MySQL
	Events int64  `json:"events"`
	// Offsets are of so many of them.
	Offsets       int64 `json:"offsets"`
	OffsetsEvents int64 `json:"offsets_events"`
}

func encodeRecords(records []persistence.Record) (keys string, payloads []byte, err error) {
	size := 0
	encoded := make([]jsonRecord, len(records))
	for i, r := range records {
		encoded[i] = jsonRecord{r.ID, r.AccountID, r.AggregateType, r.AggregateID, r.EventType, size, len(r.Payload)}
		size += len(r.Payload)
	}
	payloads = make([]byte, 0, size) // not nil, which would be NULL
	for _, r := range records {
		payloads = append(payloads, r.Payload...)
	}
	text, err := json.Marshal(encoded)
	if err != nil {
		return "", nil, fmt.Errorf("encode %d events: %w", len(records), err)
	}
	return string(text), payloads, nil
}

func encodeMarkers(markers []persistence.Marker) (string, error) {
	keys := make([]jsonKey, len(markers))
	for i, m := range markers {
		keys[i] = jsonKey{m.Event.CreatedTime.UnixMicro(), m.Event.CreatedTime.UTC().Format(mysqlTime), m.Event.ID, m.Handler}
	}
	text, err := json.Marshal(keys)
	return string(text), err
}

// encodeArrays makes three arrays of PostgreSQL, as text, which every driver sends.
func encodeArrays(markers []persistence.Marker) (micros, ids, handlers string) {
	var m, i, h strings.Builder
	for n, marker := range markers {
		before := byte(',')
		if n == 0 {
			before = '{'
		}
		m.WriteByte(before)
		m.WriteString(strconv.FormatInt(marker.Event.CreatedTime.UnixMicro(), 10))
		i.WriteByte(before)
		quoteElement(&i, marker.Event.ID)
		h.WriteByte(before)
		quoteElement(&h, marker.Handler)
	}
	return m.String() + "}", i.String() + "}", h.String() + "}"
}

// elements escapes what ends a quoted element of an array.
var elements = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quoteElement(b *strings.Builder, text string) {
	b.WriteByte('"')
	_, _ = elements.WriteString(b, text) // a strings.Builder never fails
	b.WriteByte('"')
}

// encodeSubscriptions puts each once, in the order in which all lock them.
func encodeSubscriptions(subscriptions []persistence.Subscription) (string, error) {
	once := map[jsonSubscription]bool{}
	for _, s := range subscriptions {
		once[jsonSubscription{s.EventType, s.Handler}] = true
	}
	text, err := json.Marshal(slices.SortedFunc(maps.Keys(once), func(a, b jsonSubscription) int {
		return cmp.Or(strings.Compare(a.EventType, b.EventType), strings.Compare(a.Handler, b.Handler))
	}))
	return string(text), err
}

// encodeBuckets puts each once, with the last number that it has.
func encodeBuckets(buckets []persistence.Bucket) (string, error) {
	once := map[int64]jsonBucket{}
	for _, b := range buckets {
		once[b.Start.UnixMicro()] = jsonBucket{b.Start.UnixMicro(), b.Start.UTC().Format(mysqlTime), b.Rows, b.Offsets.Micros, b.Offsets.Rows}
	}
	text, err := json.Marshal(slices.SortedFunc(maps.Values(once), func(a, b jsonBucket) int { return cmp.Compare(a.Micros, b.Micros) }))
	return string(text), err
}
