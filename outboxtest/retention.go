package outboxtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

// monthsAgo returns the start of a month, by our clock; what lies around the
// turn of this month makes no difference to the rules.
func monthsAgo(n int) time.Time {
	now := time.Now().UTC()
	return time.Date(now.Year(), now.Month()-time.Month(n), 1, 0, 0, 0, 0, time.UTC)
}

func (s *suite) needsRetention() {
	s.Helper()
	if s.Retention == nil {
		s.Skip("the backend has no Retention")
	}
}

// history makes an outbox that is two years old: a partition for each of five
// months, and two events in each of them. An event is called after its month.
func (s *suite) history() {
	s.Helper()
	s.needsRetention()
	if s.Insert == nil {
		s.Skip("the backend has no Insert: its events are of now")
	}
	if s.Partition != nil {
		var ends []time.Time
		for month := 23; month >= 19; month-- {
			ends = append(ends, monthsAgo(month))
		}
		require.NoError(s, s.Partition(s.ctx, ends...))
	}
	for month := 24; month >= 20; month-- {
		for i, at := range []time.Time{monthsAgo(month), monthsAgo(month - 1).Add(-time.Microsecond)} {
			r := record(fmt.Sprintf("%d-%d", month, i))
			r.CreatedTime = at
			require.NoError(s, s.Insert(s.ctx, r))
		}
	}
}

// left returns the months of the history that are there.
func (s *suite) left() (months []string) {
	s.Helper()
	for _, r := range s.read(beginning) {
		if month := r.ID[:2]; !slices.Contains(months, month) {
			months = append(months, month)
		}
	}
	return months
}

// reader returns a dispatcher that has settled n events of the history, and how
// often each event was applied.
func (s *suite) reader(name string, n int) (*events.Dispatcher, map[string]int) {
	s.Helper()
	applied := map[string]int{}
	require.NoError(s, s.Cursors.Create(s.ctx, name, beginning))
	d := s.dispatcher(events.WithName(name))
	require.NoError(s, d.Subscribe("test.Happened", name, func(_ context.Context, e events.Event) error {
		applied[e.ID]++
		return nil
	}))
	s.settled()
	for done := 0; done < n; {
		settled, err := d.RunOnce(s.ctx, n-done)
		require.NoError(s, err)
		done += settled
	}
	return d, applied
}

func (s *suite) drop(before time.Time, options persistence.RetentionOptions) (persistence.RetentionReport, error) {
	return s.Retention.DropPartitionsBefore(s.ctx, before, options)
}

var retentionRules = []rule{
	{"retention refuses a context that carries a transaction", func(s *suite) {
		s.needsRetention()
		err := s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			_, err := s.Retention.EnsurePartitions(ctx, 3, persistence.RetentionOptions{})
			require.ErrorIs(s, err, persistence.ErrInTransaction)
			_, err = s.Retention.DropPartitionsBefore(ctx, time.Now(), persistence.RetentionOptions{})
			require.ErrorIs(s, err, persistence.ErrInTransaction)
			return nil
		})
		require.NoError(s, err)
	}},
	{"retention refuses options that make no sense", func(s *suite) {
		s.needsRetention()
		bad := persistence.RetentionOptions{LockTimeout: -time.Second}
		_, err := s.Retention.EnsurePartitions(s.ctx, 3, bad)
		require.ErrorIs(s, err, persistence.ErrInvalid)
		_, err = s.drop(time.Now(), bad)
		require.ErrorIs(s, err, persistence.ErrInvalid)
		_, err = s.Retention.EnsurePartitions(s.ctx, -1, persistence.RetentionOptions{})
		require.ErrorIs(s, err, persistence.ErrInvalid)
		_, err = persistence.Retain(s.ctx, s.Retention, -time.Hour, persistence.RetentionOptions{})
		require.ErrorIs(s, err, persistence.ErrInvalid)
	}},
	{"partitions are made ahead, once", func(s *suite) {
		s.needsRetention()
		s.commit(record("before"))
		plan, err := s.Retention.EnsurePartitions(s.ctx, 6, persistence.RetentionOptions{DryRun: true})
		require.NoError(s, err)
		require.WithinDuration(s, time.Now(), plan.Now, time.Hour)
		made, err := s.Retention.EnsurePartitions(s.ctx, 6, persistence.RetentionOptions{})
		require.NoError(s, err)
		require.Equal(s, plan.Created, made.Created, "the dry run made nothing and knew")
		if s.Partition != nil {
			require.NotEmpty(s, made.Created)
			require.Equal(s, monthsAgo(-7), made.Created[len(made.Created)-1].To)
		}
		again, err := s.Retention.EnsurePartitions(s.ctx, 6, persistence.RetentionOptions{})
		require.NoError(s, err)
		require.Empty(s, again.Created)
		s.commit(record("after"))
		s.wantIDs("before", "after")
	}},
	{"an event that is owed is never dropped", func(s *suite) {
		s.history()
		d, _ := s.reader("billing", 0)
		report, err := s.drop(monthsAgo(2), persistence.RetentionOptions{})
		require.ErrorIs(s, err, persistence.ErrOwed)
		require.ErrorContains(s, err, `"billing"`)
		require.Empty(s, report.Dropped)
		require.Equal(s, []string{"24", "23", "22", "21", "20"}, s.left())

		n, err := d.RunOnce(s.ctx, 100)
		require.NoError(s, err)
		require.Equal(s, 10, n)
		report, err = s.drop(monthsAgo(2), persistence.RetentionOptions{})
		require.NoError(s, err)
		require.NotEmpty(s, report.Dropped)
		require.Empty(s, s.left())
	}},
	{"an event that a handler was left behind of is never dropped", func(s *suite) {
		s.history()
		events := s.read(beginning)
		lease := s.load("billing").Lease
		late := subscription("late")
		s.register("billing", late)
		s.caughtUp(lease, events[3].Cursor(), late)
		s.serve(lease) // it is left behind in the middle of the second month
		s.save(lease, events[len(events)-1].Cursor())
		_, err := s.drop(monthsAgo(2), persistence.RetentionOptions{})
		require.ErrorIs(s, err, persistence.ErrOwed)
		for _, named := range []string{`"billing"`, `"late"`, `"test.Happened"`, "deploy"} {
			require.ErrorContains(s, err, named)
		}
		require.Equal(s, []string{"22", "21", "20"}, s.left())
		s.caughtUp(lease, events[len(events)-1].Cursor(), late)
		_, err = s.drop(monthsAgo(2), persistence.RetentionOptions{})
		require.NoError(s, err)
		require.Empty(s, s.left())
	}},
	{"what is owed does not keep the months before it", func(s *suite) {
		s.history()
		s.reader("billing", 10)
		s.reader("mail", 5) // in the middle of the third month
		_, err := s.drop(monthsAgo(2), persistence.RetentionOptions{})
		require.ErrorIs(s, err, persistence.ErrOwed)
		require.ErrorContains(s, err, `"mail"`)
		require.Equal(s, []string{"22", "21", "20"}, s.left())
		require.NoError(s, s.Admin.Forget(s.ctx, "mail"))
		_, err = s.drop(monthsAgo(2), persistence.RetentionOptions{})
		require.NoError(s, err)
		require.Empty(s, s.left())
	}},
	{"a partition that overlaps the time stays", func(s *suite) {
		s.history()
		s.reader("billing", 10)
		_, err := s.drop(monthsAgo(22).Add(-time.Nanosecond), persistence.RetentionOptions{})
		require.NoError(s, err)
		if s.Partition != nil {
			require.Equal(s, []string{"23", "22", "21", "20"}, s.left())
		}
		_, err = s.drop(monthsAgo(22), persistence.RetentionOptions{})
		require.NoError(s, err)
		require.Equal(s, []string{"22", "21", "20"}, s.left())
	}},
	{"without a dispatcher nothing is dropped, unless the caller says that there is none", func(s *suite) {
		s.history()
		_, err := s.drop(monthsAgo(2), persistence.RetentionOptions{})
		require.ErrorIs(s, err, persistence.ErrOwed)
		require.Len(s, s.left(), 5)
		_, err = s.drop(monthsAgo(2), persistence.RetentionOptions{NoConsumers: true})
		require.NoError(s, err)
		require.Empty(s, s.left())
		_, err = s.drop(monthsAgo(2), persistence.RetentionOptions{})
		require.NoError(s, err, "nothing is due")
	}},
	{"a dry run tells what would be dropped, and drops nothing", func(s *suite) {
		s.history()
		s.reader("billing", 10)
		plan, err := s.drop(monthsAgo(2), persistence.RetentionOptions{DryRun: true})
		require.NoError(s, err)
		require.Len(s, s.left(), 5)
		report, err := s.drop(monthsAgo(2), persistence.RetentionOptions{})
		require.NoError(s, err)
		require.Equal(s, plan.Dropped, report.Dropped)
		require.Empty(s, s.left())
	}},
	{"nothing is dropped that has not ended for the audit window", func(s *suite) {
		s.needsRetention()
		s.commit(record("now"))
		_, err := s.drop(time.Now().AddDate(1, 0, 0), persistence.RetentionOptions{NoConsumers: true})
		require.NoError(s, err)
		s.wantIDs("now")
	}},
	{"no marker is dropped before its event", func(s *suite) {
		s.history()
		d, applied := s.reader("billing", 10)
		_, err := s.drop(monthsAgo(22), persistence.RetentionOptions{})
		require.NoError(s, err)
		require.NoError(s, s.Admin.Rewind(s.ctx, "billing", beginning))
		n, err := d.RunOnce(s.ctx, 100)
		require.NoError(s, err)
		require.Equal(s, 6, n)
		require.Len(s, applied, 10)
		for id, times := range applied {
			require.Equal(s, 1, times, id)
		}
		// A marker goes with its event, or it would be there for ever.
		marker := func(id string, at time.Time) persistence.Marker {
			return persistence.Marker{Event: persistence.Cursor{CreatedTime: at, ID: id}, Handler: "billing"}
		}
		found, err := s.Idempotency.Applied(s.ctx, marker("24-0", monthsAgo(24)), marker("22-0", monthsAgo(22)))
		require.NoError(s, err)
		require.Equal(s, []bool{false, true}, found)
	}},
	{"several replicas run retention at once", func(s *suite) {
		s.history()
		s.reader("billing", 10)
		results := make(chan persistence.RetentionReport)
		const replicas = 4
		for range replicas {
			go func() {
				report, err := persistence.Retain(s.ctx, s.Retention, 30*24*time.Hour, persistence.RetentionOptions{})
				if err != nil {
					s.Errorf("retention: %v", err)
				}
				results <- report
			}()
		}
		dropped := map[persistence.Partition]int{}
		for range replicas {
			for _, p := range (<-results).Dropped {
				dropped[p]++
			}
		}
		require.Empty(s, s.left())
		require.NotEmpty(s, dropped)
		s.commit(record("after"))
		s.wantIDs("after")
	}},
	{"publishing goes on while retention runs", func(s *suite) {
		s.needsConcurrency()
		s.history()
		s.reader("billing", 10)
		open := s.begin(func(ctx context.Context) error { return s.Outbox.Append(ctx, record("open")) })
		done := make(chan error, 1)
		go func() {
			_, err := persistence.Retain(s.ctx, s.Retention, 30*24*time.Hour, persistence.RetentionOptions{})
			done <- err
		}()
		for i := range 20 { // beside one that stays open, and keeps the table locked
			s.commit(record(fmt.Sprintf("event-%02d", i)))
		}
		open.finish(nil)
		require.NoError(s, <-done)
		require.Len(s, s.read(beginning), 21)
	}},
}
