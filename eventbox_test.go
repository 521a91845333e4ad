package billet

import (
	"context"
	"sync"
	"testing"
)

// eventBox keeps events for who waits for a kind.
type eventBox struct {
	mu     sync.Mutex
	events []Event
	news   chan struct{}
}

func newEventBox() *eventBox { return &eventBox{news: make(chan struct{}, 1)} }

func (b *eventBox) put(e Event) {
	b.mu.Lock()
	b.events = append(b.events, e)
	b.mu.Unlock()
	signal(b.news)
}

// has tells whether an event of the kind came.
func (b *eventBox) has(kind EventKind) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Kind == kind {
			return true
		}
	}
	return false
}

// wait waits for an event of the kind and forgets all up to it.
func (b *eventBox) wait(ctx context.Context, t *testing.T, kind EventKind) Event {
	t.Helper()
	for {
		b.mu.Lock()
		for i, e := range b.events {
			if e.Kind == kind {
				b.events = b.events[i+1:]
				b.mu.Unlock()
				return e
			}
		}
		b.mu.Unlock()
		select {
		case <-b.news:
		case <-ctx.Done():
			t.Fatalf("no event %q", kind)
		}
	}
}
