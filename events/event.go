package events

import (
	"context"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Event says that something happened to an aggregate. It refers to aggregates
// by id and carries no copy of them.
type Event struct {
	// ID identifies the event: 1 to 64 printable ASCII characters without
	// spaces. Publish makes a UUIDv7 if it is empty. Markers name an event by
	// its stamp and ID, so one that is published twice is delivered twice.
	ID string
	// Type is what handlers subscribe to, such as "iam.v1.UserSuspended"; 1 to
	// 255 bytes.
	Type string
	// AccountID is the tenant. If it is empty, Publish takes that of the
	// context ([WithAccountID]), which may be empty, too: a service with a
	// single tenant. Up to 255 bytes.
	AccountID string
	// AggregateType and AggregateID name the aggregate that emits the event; 1
	// to 255 bytes each.
	AggregateType string
	AggregateID   string
	// DedupKey makes Publish refuse the event if the account has published one
	// with the same key before; see docs/dedup.md. It is optional: 1 to 255
	// bytes of valid UTF-8 without NUL, compared byte by byte. It is no column
	// of the outbox, so it is empty on delivery.
	DedupKey string
	// Payload is opaque and may be empty.
	Payload []byte
	// CreatedTime is the database's stamp, in whole microseconds, UTC. It is
	// set on delivery; Publish does not read it.
	CreatedTime time.Time
}

func (e Event) record() persistence.Record {
	return persistence.Record{
		ID:            e.ID,
		AccountID:     e.AccountID,
		AggregateType: e.AggregateType,
		AggregateID:   e.AggregateID,
		EventType:     e.Type,
		Payload:       e.Payload,
	}
}

func eventOf(r persistence.Record) Event {
	return Event{
		ID:            r.ID,
		Type:          r.EventType,
		AccountID:     r.AccountID,
		AggregateType: r.AggregateType,
		AggregateID:   r.AggregateID,
		Payload:       r.Payload,
		CreatedTime:   r.CreatedTime,
	}
}

type accountKey struct{}

// WithAccountID returns a context whose account is the default of events that
// are published with it.
func WithAccountID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, accountKey{}, id)
}

// AccountID returns the account of the context, or "". In a handler it is the
// account of the event.
func AccountID(ctx context.Context) string {
	id, _ := ctx.Value(accountKey{}).(string)
	return id
}
