package replication

import (
	"errors"
	"testing"
	"time"
)

// Of a producer that the log does not know, what was sent behind a refused batch is not taken before it.
func TestAppendBehindRefused(t *testing.T) {
	n, p, g := gatedNode(t, testSpec(t, 1))
	defer n.close()
	fill := func() (free func()) { // uses the budget up
		_, open := g.hold()
		answers := make(chan AppendResult, MaxInFlightBatches)
		for range MaxInFlightBatches {
			p.Append(textBatch(t, "x"), AppendOptions{Acks: AcksAll}, func(r AppendResult) { answers <- r })
		}
		return func() {
			open()
			for range MaxInFlightBatches {
				take(t, answers)
			}
		}
	}
	append := func(what string, seq int32, acks Acks, want error) {
		t.Helper()
		if r := appendBatch(t, p, producerBatch(t, 0, 5, 0, seq, 1), acks); !errors.Is(r.Err, want) {
			t.Errorf("%s: %v, want %v", what, r.Err, want)
		}
	}
	free := fill()
	append("no room", 7, AcksAll, ErrBusy)
	append("behind it, no room", 8, AcksAll, ErrOutOfOrderSequence)
	free()
	append("behind it", 8, AcksAll, ErrOutOfOrderSequence)
	append("again", 7, AcksAll, nil)
	append("the next one", 8, AcksAll, nil)
	free = fill()
	append("of a known producer, no room", 9, AcksAll, ErrBusy)
	free()
	append("behind it", 10, AcksAll, ErrOutOfOrderSequence)
	append("again", 9, AcksAll, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.missing) != 0 {
		t.Errorf("%d producers are remembered", len(p.mu.missing))
	}
}

// The same when the refusal comes later, because the proposal was dropped.
func TestAppendBehindDropped(t *testing.T) {
	n, p, g := gatedNode(t, testSpec(t, 1))
	defer n.close()
	_, open := g.hold()
	defer open()
	answers := make(chan AppendResult, 4)
	done := func(r AppendResult) { answers <- r }
	queue := func(id int64, seq int32, acks Acks) error {
		w := &waiter{base: 0, next: 1, epoch: p.append.epoch, acks: acks, done: done, producer: noProducer}
		_, _, err := p.enqueue(producerBatch(t, 0, id, 0, seq, 1), w, done)
		return err
	}
	for _, err := range []error{queue(5, 0, AcksAll), queue(6, 0, AcksNone), queue(5, 1, AcksAll)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p.failWaiters(ErrNotLeader)
	for range 2 {
		if r := take(t, answers); !errors.Is(r.Err, ErrNotLeader) {
			t.Error(r)
		}
	}
	if err := queue(5, 1, AcksAll); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Errorf("the second one first: %v", err)
	}
	if err := queue(6, 1, AcksAll); err != nil {
		t.Errorf("nobody sends a batch again that is not acknowledged: %v", err)
	}
	if err := errors.Join(queue(5, 0, AcksAll), queue(5, 1, AcksAll)); err != nil {
		t.Error(err)
	}
	p.failWaiters(ErrNotLeader)
}

func TestMissing(t *testing.T) {
	var m missing
	now := time.Now()
	m.note(1, 0, 5, now)
	m.note(1, 0, 6, now)
	if m.judge(1, 0, 6, now) == nil || m.judge(1, 0, 5, now) != nil {
		t.Error("the first one counts")
	}
	if m.judge(2, 0, 6, now) != nil || m.judge(1, 1, 0, now) != nil {
		t.Error("another producer, or a newer epoch")
	}
	m.note(1, 1, 0, now)
	if m.judge(1, 1, 1, now) == nil {
		t.Error("a newer epoch's batch was refused")
	}
	if m.judge(1, 1, 1, now.Add(missingKeep)) != nil {
		t.Error("after a while it is forgotten")
	}
	for id := range int64(2 * missingMax) {
		m.note(id+10, 0, 0, now)
	}
	if len(m) != missingMax {
		t.Errorf("%d are remembered", len(m))
	}
	m.note(1<<40, 0, 0, now.Add(missingKeep))
	if len(m) != 1 {
		t.Errorf("%d are remembered after a while", len(m))
	}
}
