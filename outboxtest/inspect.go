package outboxtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

func (s *suite) needsInspector() {
	s.Helper()
	if s.Inspector == nil {
		s.Skip("the backend has no Inspector")
	}
}

func (s *suite) find(query persistence.RecordQuery) persistence.RecordPage {
	s.Helper()
	page, err := s.Inspector.FindRecords(s.ctx, query)
	require.NoError(s, err)
	return page
}

var inspectRules = []rule{
	{"FindRecords returns the records of a range, either way", func(s *suite) {
		s.needsInspector()
		s.commit(numbered("r", 6)...)
		all := s.read(beginning)
		for after := range all {
			for before := range all {
				query := persistence.RecordQuery{After: all[after].Cursor(), Before: all[before].Cursor(), Limit: 100, MostRows: 100}
				want := []string{}
				if after < before {
					want = ids(all[after+1 : before])
				}
				require.Equal(s, want, ids(s.find(query).Records))
				query.Backwards = true
				slices.Reverse(want)
				require.Equal(s, want, ids(s.find(query).Records))
			}
		}
		whole := s.find(persistence.RecordQuery{Limit: 100, MostRows: 100})
		require.Equal(s, all, whole.Records, "whole records")
		require.Equal(s, 6, whole.Looked)
		require.False(s, whole.More)
		for _, r := range s.find(persistence.RecordQuery{Limit: 100, MostRows: 100, WithoutPayload: true}).Records {
			require.Empty(s, r.Payload)
		}
	}},
	{"FindRecords looks at a bounded number of records, page by page", func(s *suite) {
		s.needsInspector()
		for i := range 20 {
			r := record(fmt.Sprintf("p-%02d", i))
			r.EventType = fmt.Sprintf("test.Type%d", i%3)
			s.commit(r)
		}
		var want []string
		for _, r := range s.read(beginning) {
			if r.EventType == "test.Type1" {
				want = append(want, r.ID)
			}
		}
		for _, backwards := range []bool{false, true} {
			for limit := 1; limit <= 3; limit++ {
				for most := 1; most <= 21; most++ {
					query := persistence.RecordQuery{EventType: "test.Type1", Backwards: backwards, Limit: limit, MostRows: most}
					got := []string{}
					for pages := 0; ; pages++ {
						page := s.find(query)
						require.LessOrEqual(s, page.Looked, most)
						require.LessOrEqual(s, len(page.Records), limit)
						require.Less(s, pages, 30, "it must come to an end")
						got = append(got, ids(page.Records)...)
						if !page.More {
							break
						}
						if query.After = page.Next; backwards {
							query.After, query.Before = beginning, page.Next
						}
					}
					require.Equal(s, want, got, "backwards %v, limit %d, at most %d rows", backwards, limit, most)
				}
			}
			slices.Reverse(want)
		}
	}},
	{"FindRecords selects by each column, compared byte by byte", func(s *suite) {
		s.needsInspector()
		var all []persistence.Record
		for i, value := range []string{"a", "A", "a ", "ä", "a\t", "b"} {
			for column := range 4 {
				r := record(fmt.Sprintf("c-%d-%d", i, column))
				*[]*string{&r.EventType, &r.AccountID, &r.AggregateType, &r.AggregateID}[column] = value
				all = append(all, r)
			}
		}
		s.commit(all...)
		for _, want := range all {
			for name, query := range map[string]persistence.RecordQuery{
				"id": {ID: want.ID}, "event type": {EventType: want.EventType}, "account": {AccountID: want.AccountID},
				"aggregate type": {AggregateType: want.AggregateType}, "aggregate id": {AggregateID: want.AggregateID},
			} {
				query.Limit, query.MostRows = 100, 100
				var expected []string
				for _, r := range all {
					if query.Selects(r) {
						expected = append(expected, r.ID)
					}
				}
				require.Equal(s, expected, ids(s.find(query).Records), "%s of %+v", name, query)
			}
		}
	}},
	{"FindRecords without its limits is refused", func(s *suite) {
		s.needsInspector()
		for _, query := range []persistence.RecordQuery{{}, {Limit: 1}, {MostRows: 1}, {Limit: -1, MostRows: 1}} {
			_, err := s.Inspector.FindRecords(s.ctx, query)
			require.ErrorIs(s, err, persistence.ErrInvalid)
		}
	}},
	{"AppliedHandlers names the handlers with a marker of the event, and no others", func(s *suite) {
		s.needsInspector()
		later := marker("a", "later")
		later.Event.CreatedTime = later.Event.CreatedTime.Add(time.Microsecond)
		s.recordMarkers(marker("a", "h2"), marker("a", "h1"), marker("a", "H"), marker("b", "other"), later)
		handlers, err := s.Inspector.AppliedHandlers(s.ctx, marker("a", "").Event)
		require.NoError(s, err)
		require.Equal(s, []string{"H", "h1", "h2"}, handlers)
		handlers, err = s.Inspector.AppliedHandlers(s.ctx, marker("c", "").Event)
		require.NoError(s, err)
		require.Empty(s, handlers)
	}},
	{"Failures are those of one dispatcher on one event", func(s *suite) {
		s.needsInspector()
		for _, d := range []string{"d", "other"} {
			lease := s.load(d).Lease
			for _, f := range []persistence.Failure{
				{Event: at(1, "a"), Handler: "h2", Error: "two"}, {Event: at(1, "a"), Handler: "h1", Error: "one of " + d},
				{Event: at(1, "b"), Handler: "h1", Error: "b"}, {Event: at(2, "a"), Handler: "h1", Error: "later"},
			} {
				_, err := s.Cursors.RecordFailure(s.ctx, lease, f)
				require.NoError(s, err)
			}
		}
		failures, err := s.Inspector.Failures(s.ctx, "d", at(1, "a"))
		require.NoError(s, err)
		require.Len(s, failures, 2)
		require.Equal(s, "one of d", failures[0].LastError)
		require.Equal(s, at(1, "a"), failures[0].Event)
		require.Equal(s, 1, failures[0].Attempts)
		require.Equal(s, "h2", failures[1].Handler)
		failures, err = s.Inspector.Failures(s.ctx, "nobody", at(1, "a"))
		require.NoError(s, err)
		require.Empty(s, failures)
	}},
}
