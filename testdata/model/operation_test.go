package model

import (
	"context"
	"errors"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

// operation is a step of a sequence. One that makes no sense where it stands
// does nothing, so that every part of a sequence is a sequence.
type operation interface{ do(m *machine) }

// spec is an event to be published.
type spec struct{ account, aggregate, kind int }

func (s spec) event(id string) *event {
	return &event{Event: events.Event{
		ID:            id,
		Type:          string("tuv"[s.kind]),
		AccountID:     fmt.Sprint("account-", s.account),
		AggregateType: "thing",
		AggregateID:   fmt.Sprint("thing-", s.aggregate),
	}}
}

// aggregate names what order is kept by.
func (e *event) aggregate() string { return e.AccountID + "/" + e.AggregateID }

// publish publishes in a transaction that ends at once.
type publish struct {
	events   []spec
	rollback bool
}

func (o publish) do(m *machine) {
	if m.locked(o.events) {
		return
	}
	t := m.begin(o.events)
	m.end(t, o.rollback)
}

// begin publishes in a transaction that stays open.
type begin struct{ events []spec }

func (o begin) do(m *machine) {
	if m.OneWriter || len(m.open) == 3 || m.locked(o.events) {
		return
	}
	m.open = append(m.open, m.begin(o.events))
}

// more publishes in a transaction that is open.
type more struct {
	transaction int
	events      []spec
}

func (o more) do(m *machine) {
	if len(m.open) == 0 || m.locked(o.events) {
		return
	}
	t := m.open[o.transaction%len(m.open)]
	t.publish(m.make(o.events))
}

// end ends a transaction that is open.
type end struct {
	transaction int
	rollback    bool
}

func (o end) do(m *machine) {
	if len(m.open) > 0 {
		m.end(m.open[o.transaction%len(m.open)], o.rollback)
	}
}

// transaction is one of a producer. It has locked the aggregates that it writes.
type transaction struct {
	m      *machine
	events []*event
	todo   chan func(context.Context) error
	done   chan error
}

var errRollback = errors.New("roll back")

// locked reports whether another transaction has locked one of the aggregates.
func (m *machine) locked(specs []spec) bool {
	for _, t := range m.open {
		for _, e := range t.events {
			for _, s := range specs {
				if s.event("").aggregate() == e.aggregate() {
					return true
				}
			}
		}
	}
	return false
}

// make makes events. The byte order of their ids is not that of their making.
func (m *machine) make(specs []spec) []*event {
	var made []*event
	for _, s := range specs {
		made = append(made, m.add(s.event(fmt.Sprintf("e%d", len(m.events)+1))))
	}
	return made
}

// begin begins a transaction and publishes in it.
func (m *machine) begin(specs []spec) *transaction {
	t := &transaction{m: m, todo: make(chan func(context.Context) error), done: make(chan error, 1)}
	go func() {
		t.done <- m.Transactor.Atomically(m.ctx, func(ctx context.Context) error {
			for fn := range t.todo {
				if err := fn(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	t.publish(m.make(specs))
	return t
}

func (t *transaction) publish(evts []*event) {
	published := make(chan error, 1)
	t.todo <- func(ctx context.Context) error {
		var all []events.Event
		for _, e := range evts {
			all = append(all, e.Event)
		}
		err := events.NewPublisher(t.m.Outbox).Publish(ctx, all...)
		published <- err
		return err
	}
	if err := <-published; err != nil {
		t.m.t.Fatalf("publish: %v", err)
	}
	t.events = append(t.events, evts...)
}

// end ends a transaction.
func (m *machine) end(t *transaction, rollback bool) {
	for i := range m.open {
		if m.open[i] == t {
			m.open = append(m.open[:i:i], m.open[i+1:]...)
			break
		}
	}
	if rollback {
		t.todo <- func(context.Context) error { return errRollback }
		<-t.done
		return
	}
	close(t.todo)
	if err := <-t.done; err != nil {
		m.t.Fatalf("commit: %v", err)
	}
	synctest.Wait()
	m.committed(t.events, false)
}

// committed notes the order of commits, and the stamps.
func (m *machine) committed(evts []*event, rogue bool) {
	stored := m.stored()
	m.commits++
	for _, e := range evts {
		at, ok := stored[e.ID]
		if !ok {
			m.t.Fatalf("event %s is committed, and cannot be read", e.ID)
		}
		e.committed, e.position, e.CreatedTime = m.commits, at, at.CreatedTime
		if e.stray = at.CreatedTime.Before(m.mark.greatest()); e.stray && !m.broken {
			m.t.Fatalf("event %s is stamped before a safe mark: the backend is wrong", e.ID)
		}
		e.stray = e.stray || rogue
		m.excuse(e)
	}
}

// stored returns the positions of the events that the table holds.
func (m *machine) stored() map[string]persistence.Cursor {
	page, err := m.Outbox.ReadWindow(m.ctx, persistence.WindowRead{Limit: 100_000})
	if err != nil {
		m.t.Fatalf("read: %v", err)
	}
	stored := map[string]persistence.Cursor{}
	for _, r := range page.Records {
		stored[r.ID] = r.Cursor()
	}
	return stored
}

// pause lets time pass.
type pause struct{ d time.Duration }

func (o pause) do(m *machine) {
	if o.d >= time.Minute { // the default of a handler's time-out
		m.interrupted += len(m.replicas)
	}
	m.sleep(o.d)
}
