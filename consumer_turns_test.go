package billet

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/group"
)

// heldGroups can hold commits back until it is told to carry them out, whether anybody waits for them or not.
type heldGroups struct {
	groups
	hold          atomic.Bool
	came, release chan struct{}
}

func (g *heldGroups) Ask(ctx context.Context, clientID string, q group.Message) (group.Answer, error) {
	if _, ok := q.(*kmsg.OffsetCommitRequest); ok && g.hold.Load() {
		g.came <- struct{}{}
		<-g.release
		ctx = context.WithoutCancel(ctx)
	}
	return g.groups.Ask(ctx, clientID, q)
}

// Of two commits the one that was asked for later counts, whichever comes first.
func TestGroupCommitsInTurn(t *testing.T) {
	r := newGroupRig(t, 1, 10)
	held := &heldGroups{groups: r.groups, came: make(chan struct{}), release: make(chan struct{})}
	c, err := newConsumer(r.cat, held, ConsumerConfig{Group: "g", Topics: []string{"t"}, CommitInterval: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for read := 0; read < 10; {
		records, err := c.Poll(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		read += len(records)
	}
	m := c.group
	m.mu.Lock()
	key := memberKey{m.mu.has[firstOf(m.mu.has)], firstOf(m.mu.has).Topic}
	ask := func(offset int64) commitAsk { return m.askLocked(map[memberKey]int64{key: offset}) }
	earlier, later, last := ask(5), ask(10), ask(7)
	m.mu.Unlock()
	committed := func(want int64) {
		t.Helper()
		if at, ok, err := c.Committed(r.ctx, "t", 0); at != want || !ok || err != nil {
			t.Errorf("the group is at %d, %v, %v, want %d", at, ok, err, want)
		}
	}
	for _, a := range []commitAsk{later, earlier} {
		if err := m.commit(r.ctx, a); err != nil {
			t.Fatal(err)
		}
		committed(10)
	}
	if err := m.commit(r.ctx, last); err != nil { // back, because somebody wants that
		t.Fatal(err)
	}
	committed(7)

	// One whose caller has gone is carried out before the next one.
	held.hold.Store(true)
	gone, leave := context.WithCancel(r.ctx)
	left := make(chan error, 1)
	go func() { left <- c.CommitRecords(gone, Record{Topic: "t", Offset: 7}) }()
	<-held.came
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := m.takeTurn(gone); err == nil {
		t.Error("another commit may begin")
	}
	next := make(chan error, 1)
	go func() { next <- c.CommitRecords(r.ctx, Record{Topic: "t", Offset: 8}) }()
	held.release <- struct{}{}
	<-held.came
	committed(8)
	held.release <- struct{}{}
	if err := <-next; err != nil {
		t.Error(err)
	}
	committed(9)
}

func firstOf[K comparable, V any](m map[K]V) (first K) {
	for k := range m {
		return k
	}
	return first
}
