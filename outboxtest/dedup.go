package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

func (s *suite) needsDedup() {
	s.Helper()
	if s.Dedup == nil {
		s.Skip("the backend has no Dedup")
	}
}

// keyed returns an event whose id is its key.
func keyed(key string) events.Event {
	return events.Event{ID: key, Type: "test.Happened", AccountID: "account", AggregateType: "User", AggregateID: "user-1", DedupKey: key}
}

func keyedAll(keys ...string) []events.Event {
	var evts []events.Event
	for _, key := range keys {
		evts = append(evts, keyed(key))
	}
	return evts
}

func (s *suite) publish(ctx context.Context, evts ...events.Event) error {
	return events.NewPublisher(s.Outbox).Publish(ctx, evts...)
}

// command publishes in a transaction of its own, and commits only if that
// succeeds.
func (s *suite) command(evts ...events.Event) error {
	return s.Transactor.Atomically(s.ctx, func(ctx context.Context) error { return s.publish(ctx, evts...) })
}

// wantFree requires that keys of the account are free, and leaves them so.
func (s *suite) wantFree(keys ...string) {
	s.Helper()
	for _, key := range keys {
		require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, s.publish(ctx, keyed(key)), "key %q", key)
			return errRollback
		}), errRollback)
	}
}

// wantRefused requires that a racing twin was refused, or failed with its
// snapshot.
func (s *suite) wantRefused(err error) {
	s.Helper()
	if s.Snapshots && err != nil && !errors.Is(err, persistence.ErrDuplicate) {
		require.True(s, s.Transactor.(persistence.FaultJudge).IsTransient(err), err)
		require.ErrorIs(s, err, persistence.ErrTransient)
		return
	}
	require.ErrorIs(s, err, persistence.ErrDuplicate)
}

func (s *suite) wantTaken(keys ...string) {
	s.Helper()
	for _, key := range keys {
		require.ErrorIs(s, s.command(keyed(key)), persistence.ErrDuplicate, "key %q", key)
	}
}

var dedupRules = []rule{
	{"a dedup key is taken once, and a second event with it is refused", func(s *suite) {
		s.needsDedup()
		require.NoError(s, s.command(keyed("a")))
		again := keyed("a")
		again.ID = "again"
		err := s.command(again)
		require.ErrorIs(s, err, persistence.ErrDuplicate)
		for _, named := range []string{"again", `"a"`, `"account"`} {
			require.ErrorContains(s, err, named)
		}
		err = s.command(keyedAll("b", "a", "c")...)
		require.ErrorIs(s, err, persistence.ErrDuplicate)
		require.ErrorContains(s, err, `key "a"`)
		require.NotContains(s, err.Error(), `key "b"`)
		s.wantIDs("a")
		s.wantFree("b", "c")
	}},
	{"events without a dedup key are never refused", func(s *suite) {
		s.needsDedup()
		first, second := keyed("first"), keyed("second")
		first.DedupKey, second.DedupKey = "", ""
		require.NoError(s, s.command(first, keyed("a"), second))
		first.ID = "third"
		require.NoError(s, s.command(first, keyed("b")))
		s.wantIDs("first", "a", "second", "third", "b")
	}},
	{"the dedup keys of one account are no other's", func(s *suite) {
		s.needsDedup()
		var want []string
		for i, account := range []string{"account", "", "Account", "account ", "accoünt", "accou\u0308nt"} {
			e := keyed("key")
			e.ID, e.AccountID = fmt.Sprintf("event-%d", i), account
			want = append(want, e.ID)
			require.NoError(s, s.command(e), "account %q", account)
			require.ErrorIs(s, s.command(e), persistence.ErrDuplicate, "account %q", account)
		}
		// Neither is a key with a part of the account's name before it.
		e := keyed("tkey")
		e.ID, e.AccountID = "split", "accoun"
		require.NoError(s, s.command(e))
		s.wantIDs(append(want, "split")...)
	}},
	{"dedup keys are compared byte by byte", func(s *suite) {
		s.needsDedup()
		long := strings.Repeat("ü", 127)
		keys := []string{"key", "Key", "KEY", "key ", "key  ", "key\t", " key", "këy", "ke\u0308y", "ss", "ß", "5", "05", "5.0", `"`, `\`, `\\`,
			"<&>", "\u2028", "🏦", "🏧", "\u200b", "'; --", "null", "true", "\x01", " ", long, long + "u", long + "U"}
		var all []events.Event
		for i, key := range keys {
			e := keyed(key)
			e.ID = fmt.Sprintf("event-%02d", i)
			all = append(all, e)
		}
		require.NoError(s, s.command(all...))
		for _, e := range all {
			require.ErrorIs(s, s.command(e), persistence.ErrDuplicate, "key %q", e.DedupKey)
		}
		require.Len(s, s.read(beginning), len(keys))
	}},
	{"a dedup key needs a transaction and goes with it", func(s *suite) {
		s.needsDedup()
		require.ErrorIs(s, s.publish(s.ctx, keyed("a")), persistence.ErrNoTransaction)
		reservation := persistence.Reservation{Record: record("a"), Key: "a"}
		require.ErrorIs(s, s.Dedup.ReserveKeys(s.ctx, reservation), persistence.ErrNoTransaction)
		require.ErrorIs(s, s.Dedup.ReserveKeys(s.ctx), persistence.ErrNoTransaction)
		var ended context.Context
		require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			ended = ctx
			require.NoError(s, s.Dedup.ReserveKeys(ctx))
			require.NoError(s, s.publish(ctx, keyed("a")))
			return errRollback
		}), errRollback)
		require.ErrorIs(s, s.Dedup.ReserveKeys(ended, reservation), persistence.ErrNoTransaction)
		s.wantIDs()
		require.NoError(s, s.command(keyed("a")))
		s.wantIDs("a")
	}},
	{"a savepoint that is rolled back frees its dedup keys and no others", func(s *suite) {
		s.needsDedup()
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, s.publish(ctx, keyed("outer")))
			require.ErrorIs(s, s.Transactor.Atomically(ctx, func(ctx context.Context) error {
				require.NoError(s, s.publish(ctx, keyedAll("inner", "again")...))
				return errRollback
			}), errRollback)
			return s.Transactor.Atomically(ctx, func(ctx context.Context) error { return s.publish(ctx, keyed("again")) })
		}))
		s.wantIDs("outer", "again")
		s.wantFree("inner")
		s.wantTaken("outer", "again")
	}},
	{"a refusal writes nothing, reserves nothing and leaves the transaction usable", func(s *suite) {
		s.needsDedup()
		require.NoError(s, s.command(keyedAll("m", "n")...))
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, s.publish(ctx, keyedAll("mine", "mine-too")...))
			unkeyed := keyed("unkeyed")
			unkeyed.DedupKey = ""
			require.ErrorIs(s, s.publish(ctx, append(keyedAll("a", "n", "z", "m"), unkeyed)...), persistence.ErrDuplicate)
			require.ErrorIs(s, s.publish(ctx, keyed("m")), persistence.ErrDuplicate)
			// What this transaction has reserved itself is refused, and stays reserved.
			require.ErrorIs(s, s.publish(ctx, keyedAll("b", "mine", "y")...), persistence.ErrDuplicate)
			require.NoError(s, s.publish(ctx, keyed("z")), "it was given back")
			return s.Put(ctx, "k", "v")
		}))
		s.wantState("k", "v")
		s.wantIDs("m", "n", "mine", "mine-too", "z")
		s.wantFree("a", "b", "y")
		s.wantTaken("mine", "mine-too", "z", "m", "n")
	}},
	{"two events of one call with the same dedup key are refused", func(s *suite) {
		s.needsDedup()
		twin, elsewhere := keyed("a"), keyed("a")
		twin.ID, elsewhere.ID, elsewhere.AccountID = "twin", "elsewhere", "other"
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			err := s.publish(ctx, keyed("b"), keyed("a"), keyed("c"), twin)
			require.ErrorIs(s, err, persistence.ErrDuplicate)
			require.ErrorContains(s, err, "twin")
			return nil
		}))
		s.wantIDs()
		s.wantFree("a", "b", "c")
		require.NoError(s, s.command(keyed("a"), elsewhere))
	}},
	{"bad dedup keys and bad events are refused before anything is reserved", func(s *suite) {
		s.needsDedup()
		good, bad, large := keyed("good"), keyed("bad"), keyed("large")
		bad.Type = ""
		large.Payload = make([]byte, persistence.DefaultMaxPayload+1)
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			for _, key := range []string{strings.Repeat("x", 256), "\xff", "a\x00b"} {
				e := keyed(key)
				e.ID = "spoiled"
				err := s.publish(ctx, good, e)
				require.ErrorIs(s, err, persistence.ErrInvalid, "key %q", key)
				require.ErrorContains(s, err, "spoiled")
				require.ErrorContains(s, err, "dedup_key")
			}
			require.ErrorIs(s, s.publish(ctx, good, bad), persistence.ErrInvalid)
			require.ErrorIs(s, s.publish(ctx, good, large), persistence.ErrInvalid)
			return nil
		}))
		s.wantIDs()
		s.wantFree("good", "bad")
	}},
	{"a dedup key that cannot be written is an error, never a duplicate", func(s *suite) {
		s.needsDedup()
		require.NoError(s, s.command(keyed("before"))) // so that server and tables are known
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		err := s.Transactor.Atomically(ctx, func(ctx context.Context) error {
			cancel()
			return s.publish(ctx, keyed("a"))
		})
		require.Error(s, err)
		require.NotErrorIs(s, err, persistence.ErrDuplicate)
		s.wantFree("a")
		if s.EndTransaction == nil {
			return
		}
		require.Error(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			_ = s.EndTransaction(ctx)
			require.ErrorIs(s, s.publish(ctx, keyed("a")), persistence.ErrNoTransaction)
			return nil
		}))
		s.wantFree("a")
	}},
	{"of many producers with the same dedup key one commits", func(s *suite) {
		s.needsDedup()
		const producers, rounds = 16, 5
		for round := range rounds {
			key := fmt.Sprintf("key-%d", round)
			errs := make([]error, producers)
			var all sync.WaitGroup
			for i := range errs {
				all.Go(func() {
					e := keyed(key)
					e.ID = fmt.Sprintf("event-%d-%d", round, i)
					errs[i] = s.command(e)
				})
			}
			all.Wait()
			committed := 0
			for _, err := range errs {
				if err == nil {
					committed++
					continue
				}
				s.wantRefused(err)
			}
			require.Equal(s, 1, committed)
		}
		require.Len(s, s.read(beginning), rounds)
	}},
	{"who comes second with a dedup key waits: refused if the first commits", func(s *suite) {
		s.wantRefused(s.raceForKey(nil))
		s.wantIDs("first")
	}},
	{"who comes second with a dedup key waits: accepted if the first rolls back", func(s *suite) {
		require.NoError(s, s.raceForKey(errRollback))
		s.wantIDs("second")
	}},
	{"who waits for a dedup key gives up with its context", func(s *suite) {
		s.needsDedup()
		s.needsConcurrency()
		first := s.begin(func(ctx context.Context) error { return s.publish(ctx, keyed("a")) })
		ctx, cancel := context.WithTimeout(s.ctx, 50*time.Millisecond)
		defer cancel()
		err := s.Transactor.Atomically(ctx, func(ctx context.Context) error { return s.publish(ctx, keyed("a")) })
		require.Error(s, err)
		require.NotErrorIs(s, err, persistence.ErrDuplicate)
		first.finish(errRollback)
		s.wantFree("a")
	}},
	{"nobody waits for the other dedup keys of an open transaction", func(s *suite) {
		s.needsDedup()
		s.needsConcurrency()
		first := s.begin(func(ctx context.Context) error { return s.publish(ctx, keyedAll("b", "d")...) })
		require.NoError(s, s.command(keyedAll("a", "c", "e")...))
		first.finish(nil)
		s.wantTaken("a", "b", "c", "d", "e")
	}},
	{"two calls with the same dedup keys in opposite order do not deadlock", func(s *suite) {
		s.needsDedup()
		s.needsConcurrency()
		const keys, rounds = 500, 5
		for round := range rounds {
			forth := make([]events.Event, keys)
			for i := range forth {
				forth[i] = keyed(fmt.Sprintf("key-%d-%03d", round, i))
			}
			back := slices.Clone(forth)
			slices.Reverse(back)
			for i := range back {
				back[i].ID += "-back"
			}
			var forthErr, backErr error
			var both sync.WaitGroup
			both.Go(func() { forthErr = s.command(forth...) })
			both.Go(func() { backErr = s.command(back...) })
			both.Wait()
			if forthErr == nil {
				forthErr, backErr = backErr, forthErr
			}
			require.NoError(s, backErr)
			s.wantRefused(forthErr)
		}
	}},
	{"dedup keys are purged by age, the given number", func(s *suite) {
		s.needsDedup()
		require.NoError(s, s.command(keyedAll("a", "b", "c")...))
		mark, err := s.Outbox.SafeMark(s.ctx)
		require.NoError(s, err)
		purge := func(before time.Time, limit int) int {
			n, err := s.Dedup.PurgeKeys(s.ctx, before, limit)
			require.NoError(s, err)
			return n
		}
		require.Zero(s, purge(mark.Now.Add(-time.Hour), 10))
		s.wantTaken("a", "b", "c")
		require.Equal(s, 2, purge(mark.Now.Add(time.Hour), 2))
		require.Equal(s, 1, purge(mark.Now.Add(time.Hour), 10))
		require.Zero(s, purge(mark.Now.Add(time.Hour), 10))
		s.wantFree("a", "b", "c")
		_, err = s.Dedup.PurgeKeys(s.ctx, mark.Now, 0)
		require.ErrorIs(s, err, persistence.ErrInvalid)
	}},
	{"purging dedup keys takes no part in the context's transaction, and waits for none", func(s *suite) {
		s.needsDedup()
		require.NoError(s, s.command(keyed("a")))
		soon := time.Now().Add(24 * time.Hour)
		refused := false
		require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, s.publish(ctx, keyed("open")))
			n, err := s.Dedup.PurgeKeys(ctx, soon, 10)
			if err != nil && (s.OneWriter || s.OneConnection) {
				require.ErrorIs(s, err, persistence.ErrInTransaction, "it must refuse, not wait")
				refused = true
				return errRollback
			}
			require.NoError(s, err)
			require.Equal(s, 1, n)
			return errRollback
		}), errRollback)
		if !refused {
			s.wantFree("a")
		}
	}},
	{"retention frees old dedup keys", func(s *suite) {
		s.needsDedup()
		s.needsRetention()
		retain := func(options persistence.RetentionOptions) persistence.RetentionReport {
			s.Helper()
			options.NoConsumers = true
			report, err := persistence.Retain(s.ctx, s.Retention, 0, options)
			require.NoError(s, err)
			return report
		}
		many := make([]events.Event, 1500) // more than a batch
		for i := range many {
			many[i] = keyed(fmt.Sprintf("key-%d", i))
		}
		require.NoError(s, s.command(many...))
		require.Zero(s, retain(persistence.RetentionOptions{}).PurgedKeys, "they are kept for a month")
		require.Zero(s, retain(persistence.RetentionOptions{KeepKeys: time.Hour}).PurgedKeys)
		require.Zero(s, retain(persistence.RetentionOptions{KeepKeys: time.Microsecond, DryRun: true}).PurgedKeys)
		s.wantTaken("key-0")
		purged := 0
		for purged < len(many) { // until the database's clock has moved on
			purged += retain(persistence.RetentionOptions{KeepKeys: time.Microsecond}).PurgedKeys
			require.NoError(s, s.ctx.Err())
		}
		require.Equal(s, len(many), purged)
		s.wantFree("key-0")
		_, err := persistence.Retain(s.ctx, s.Retention, 0, persistence.RetentionOptions{KeepKeys: -time.Hour})
		require.ErrorIs(s, err, persistence.ErrInvalid)
	}},
	{"a dedup key is not delivered", func(s *suite) {
		s.needsDedup()
		require.NoError(s, s.command(keyed("a")))
		s.settled()
		d := s.dispatcher()
		var got []events.Event
		require.NoError(s, d.Subscribe("test.Happened", "h", func(_ context.Context, e events.Event) error {
			got = append(got, e)
			return nil
		}))
		s.pass(d, 1)
		require.Len(s, got, 1)
		require.Equal(s, "a", got[0].ID)
		require.Empty(s, got[0].DedupKey)
	}},
}

// raceForKey lets two transactions publish with one key, and the first end in
// the given way while the second has begun. It returns what becomes of the
// second.
func (s *suite) raceForKey(end error) error {
	s.needsDedup()
	s.needsConcurrency()
	events := keyedAll("first", "second")
	for i := range events {
		events[i].DedupKey = "key"
	}
	first := s.begin(func(ctx context.Context) error { return s.publish(ctx, events[0]) })
	entered := make(chan struct{})
	second := make(chan error, 1)
	go func() {
		second <- s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			close(entered)
			return s.publish(ctx, events[1])
		})
	}()
	<-entered
	first.finish(end)
	return <-second
}
