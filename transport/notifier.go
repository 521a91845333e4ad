package transport

import "sync"

// notifier runs the callbacks for states and events on one goroutine, in order. When the queue is full the oldest entry gives way, so
// that the last word about a peer is never lost.
type notifier struct {
	onState func(PeerState)
	onEvent func(Event)
	wake    chan struct{}

	mu struct {
		sync.Mutex
		queue   []any
		dropped uint64
	}
}

const notifierMax = 1024

func newNotifier(onState func(PeerState), onEvent func(Event)) *notifier {
	return &notifier{onState: onState, onEvent: onEvent, wake: make(chan struct{}, 1)}
}

// push queues a PeerState or an Event.
func (t *notifier) push(what any) {
	t.mu.Lock()
	if len(t.mu.queue) >= notifierMax {
		t.dropLocked()
	}
	t.mu.queue = append(t.mu.queue, what)
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// dropLocked leaves out the oldest event, or without one the oldest state.
func (t *notifier) dropLocked() {
	t.mu.dropped++
	at := 0
	for i, what := range t.mu.queue {
		if _, ok := what.(Event); ok {
			at = i
			break
		}
	}
	t.mu.queue = append(t.mu.queue[:at], t.mu.queue[at+1:]...)
}

func (t *notifier) droppedCount() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.dropped
}

// run calls back until stop is closed.
func (t *notifier) run(stop <-chan struct{}) {
	for {
		select {
		case <-t.wake:
		case <-stop:
			return
		}
		for {
			what, ok := t.pop()
			if !ok {
				break
			}
			t.call(what)
		}
	}
}

func (t *notifier) pop() (any, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.mu.queue) == 0 {
		return nil, false
	}
	what := t.mu.queue[0]
	t.mu.queue = t.mu.queue[1:]
	return what, true
}

func (t *notifier) call(what any) {
	switch x := what.(type) {
	case PeerState:
		if t.onState != nil {
			t.onState(x)
		}
	case Event:
		if t.onEvent != nil {
			t.onEvent(x)
		}
	}
}
