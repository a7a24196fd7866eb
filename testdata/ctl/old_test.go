package ctl

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/internal/facetest"
	"github.com/onward-go/outbox/internal/sqltest"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/matrix"
)

// kinds are the servers on which a situation is made.
func kinds() (all []matrix.Server) {
	for _, server := range matrix.Servers {
		if !server.Again {
			all = append(all, server)
		}
	}
	return all
}

// cut puts an event into the outbox that is half a year old, in a partition of its
// month, where there are partitions, and returns when it was stamped.
func (s *situation) cut() time.Time {
	s.Helper()
	now := time.Now().UTC()
	month := time.Date(now.Year(), now.Month()-6, 1, 0, 0, 0, 0, time.UTC)
	at := month.AddDate(0, 0, 10)
	backend := sqltest.Face(s.pool, s.dialect(), facetest.Naming{}).Backend(s)
	if backend.Partition != nil {
		require.NoError(s, backend.Partition(s.Context(), month, month.AddDate(0, 1, 0)))
	}
	require.NoError(s, backend.Insert(context.WithoutCancel(s.Context()), persistence.Record{
		ID: "old", AggregateType: "User", AggregateID: "u-1", EventType: suspended, Payload: []byte("{}"), CreatedTime: at,
	}))
	return at
}

// dialect is the name of the server's kind, as the library's dialects are named.
func (s *situation) dialect() string {
	switch {
	case s.server.Schemas:
		return "postgres"
	case s.server.Partitions:
		return "mysql"
	}
	return "sqlite"
}

// latest returns the position of the last event.
func (s *situation) latest() persistence.Cursor {
	s.Helper()
	page, err := s.outbox.FindRecords(s.Context(), persistence.RecordQuery{Backwards: true, Limit: 1, MostRows: 1})
	require.NoError(s, err)
	require.Len(s, page.Records, 1)
	return page.Records[0].Cursor()
}
