package replication

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/billetlog/billet/internal/batch"
)

func newLanes() *servedLanes {
	l := &servedLanes{}
	l.mu.all = map[laneKey]*servedLane{}
	return l
}

// Whatever comes first, batches pass by number.
func TestLaneOrder(t *testing.T) {
	l := newLanes()
	key := laneKey{1, 1}
	const n = 200
	var passed []int
	var wg sync.WaitGroup
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		wg.Go(func() {
			if err := l.enter(testContext(t), key, uint64(i), 0); err != nil {
				t.Error(err)
				return
			}
			passed = append(passed, i) // nobody else has the turn
			l.leave(key, uint64(i), false)
		})
	}
	wg.Wait()
	for i, v := range passed {
		if v != i {
			t.Fatalf("passed %v", passed)
		}
	}
}

// A number that does not come ends the lane for all behind it, at once when the sender says so.
func TestLaneBreaks(t *testing.T) {
	l := newLanes()
	key := laneKey{1, 1}
	enter := func(ctx context.Context, k laneKey, number, ended uint64) error {
		err := l.enter(ctx, k, number, ended)
		if err == nil {
			l.leave(k, number, false)
		}
		return err
	}
	if err := enter(testContext(t), key, 0, 0); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 3)
	for i := range 3 {
		go func() { refused <- enter(testContext(t), key, uint64(2+i), 0) }()
	}
	for waiting := 0; waiting < 3; {
		l.mu.Lock()
		waiting = len(l.mu.all[key].waiting)
		l.mu.Unlock()
	}
	if err := enter(testContext(t), laneKey{1, 2}, 0, 1); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-refused; !errors.Is(err, errLane) {
			t.Errorf("behind the gap: %v", err)
		}
	}
	if err := enter(testContext(t), key, 1, 0); !errors.Is(err, errLane) {
		t.Errorf("late: %v", err)
	}
	// Another node cannot end it, and nobody passes twice.
	if err := enter(testContext(t), laneKey{2, 9}, 0, 2); err != nil {
		t.Fatal(err)
	}
	if err := enter(testContext(t), laneKey{1, 2}, 1, 0); err != nil {
		t.Errorf("ended by another node: %v", err)
	}
	if err := enter(testContext(t), laneKey{1, 2}, 1, 0); !errors.Is(err, errLane) {
		t.Errorf("twice: %v", err)
	}
	if err := l.enter(testContext(t), laneKey{1, 4}, 0, 0); err != nil {
		t.Fatal(err)
	}
	l.leave(laneKey{1, 4}, 0, true)
	if err := enter(testContext(t), laneKey{1, 4}, 1, 0); !errors.Is(err, errLane) {
		t.Errorf("behind one that was refused: %v", err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if err := enter(gone, laneKey{1, 3}, 1, 0); !errors.Is(err, errLane) {
		t.Errorf("given up: %v", err)
	}
	if err := enter(testContext(t), laneKey{1, 3}, 0, 0); !errors.Is(err, errLane) {
		t.Errorf("after one was given up: %v", err)
	}
}

// hostileBatches are batches that no sound node forwards.
func hostileBatches(t testing.TB) map[string]batch.Batch {
	flipped := textBatch(t, "flipped")
	flipped[len(flipped)-1] ^= 1
	two := append(textBatch(t, "one"), textBatch(t, "two")...)
	control := batch.Builder{}
	control.Reset(batch.BuilderOptions{Control: true, HasProducer: true, ProducerID: 1})
	control.AppendControl(1, 0, 1)
	marker, err := control.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]batch.Batch{
		"empty": nil, "short": textBatch(t, "x")[:40], "flipped": flipped, "two": two, "control": marker,
		"cut": textBatch(t, "a long value")[:70],
	}
}

// What a member sends is checked before it is appended, and what is malformed is refused without harm.
func TestHostileRequests(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	appendTo(t, r.route(outsider), textBatch(t, "a"))
	l := r.leader(-1)
	from, to := r.nodes[outsider].host, int32(l+1)
	lane := uint64(100)
	for name, b := range hostileBatches(t) {
		lane++
		q := appendRequest{wirePartition: wirePartition{[16]byte{7}, 0}, acks: AcksAll, lane: lane, batch: b}
		answer, err := from.call(testContext(t), to, requestAppend, q.encode(nil))
		if err != nil {
			t.Fatal(err)
		}
		a, err := decodeAppendAnswer(answer)
		if err != nil || !errors.Is(a.err(to), ErrInvalidBatch) {
			t.Errorf("%s: %v, %v", name, a.err(to), err)
		}
	}
	for kind := requestLeaders; kind <= requestWatch; kind++ {
		for _, garbage := range []string{"", "x", fmt.Sprintf("%01000d", 7)} {
			_, _ = from.call(testContext(t), to, kind, []byte(garbage))
		}
	}
	fetch := fetchRequest{wirePartition: wirePartition{[16]byte{9}, 0}, maxBytes: 1}
	answer, err := from.call(testContext(t), to, requestFetch, fetch.encode())
	if err != nil {
		t.Fatal(err)
	}
	if a, err := decodeFetchAnswer(answer); err != nil || !errors.Is(a.err(to), ErrUnknownTopic) {
		t.Errorf("fetch of an unknown topic: %v, %v", a.err(to), err)
	}
	if res := appendTo(t, r.route(outsider), textBatch(t, "b")); res.Offset != 1 {
		t.Errorf("offset %d after hostile requests, want 1", res.Offset)
	}
}

// Every record of a foreign batch is held against the topic's bounds, not the first one only.
func TestForeignTimestamps(t *testing.T) {
	n := newTestNode(t)
	defer n.close()
	spec := testSpec(t, 1)
	var err error
	if spec.Settings, err = ParseSettings(map[string]string{"message.timestamp.before.max.ms": "60000"}); err != nil {
		t.Fatal(err)
	}
	p := n.start(spec, true)
	now := n.host.now().UnixMilli()
	if err := p.checkForeign(timedBatch(t, now, now-30000)); err != nil {
		t.Error(err)
	}
	if err := p.checkForeign(timedBatch(t, now, now-3600000)); !errors.Is(err, ErrInvalidTimestamp) {
		t.Errorf("an old second record: %v", err)
	}
}
