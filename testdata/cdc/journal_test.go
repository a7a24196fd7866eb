package cdc

import (
	"context"
	"errors"

	"github.com/onward-go/outbox/persistence"
)

var errRefused = errors.New("the consumer refuses")

// journal is a consumer that outlives its engine.
type journal struct {
	records  []persistence.Record
	position []byte
	room     int // if it is not zero, records beyond it are refused
}

func (j *journal) Consume(_ context.Context, records []persistence.Record, position []byte) error {
	if j.room > 0 && len(j.records)+len(records) > j.room {
		return errRefused
	}
	j.records = append(j.records, records...)
	j.position = position
	return nil
}

func (j *journal) Position(context.Context) ([]byte, error) { return j.position, nil }

func (j *journal) ids() []string { return ids(j.records) }

func ids(records []persistence.Record) []string {
	all := []string{}
	for _, r := range records {
		all = append(all, r.ID)
	}
	return all
}
