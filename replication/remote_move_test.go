package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/transport"
)

// windowProducer is an idempotent producer with a window of batches in flight. After a failure it waits for all of them and goes on with the first
// that is not acknowledged, as producers do.
type windowProducer struct {
	t     testing.TB
	route *Route
	id    int64
	name  string

	acked   atomic.Int64 // batches, all before them included
	retries atomic.Int64
}

func (p *windowProducer) batch(n int64) batch.Batch {
	var b batch.Builder
	b.Reset(batch.BuilderOptions{HasProducer: true, ProducerID: p.id, BaseSequence: int32(n)})
	b.Append(time.Now().UnixMilli(), nil, fmt.Appendf(nil, "%s-%d", p.name, n), nil)
	out, err := b.Finish()
	if err != nil {
		p.t.Error(err)
	}
	return out
}

// run produces until stop says so and all that was sent is acknowledged, and returns how many batches there are.
func (p *windowProducer) run(ctx context.Context, stop func() bool) int64 {
	type answer struct {
		n   int64
		err error
	}
	answers := make(chan answer, MaxIdempotentInFlight)
	next, top := int64(0), int64(0) // to send, and never sent
	flying, failing := 0, false
	for {
		ending := stop()
		if flying == 0 {
			if ending && p.acked.Load() == top {
				return top
			}
			if failing {
				p.retries.Add(1)
				next, failing = p.acked.Load(), false
				if err := p.route.Writable(ctx); err != nil {
					p.t.Errorf("%s: %v", p.name, err)
					return top
				}
				pause(ctx, 2*time.Millisecond)
			}
		}
		for !failing && flying < MaxIdempotentInFlight && (!ending || next < top) {
			n := next
			next++
			top = max(top, next)
			flying++
			p.route.Append(p.batch(n), AppendOptions{Acks: AcksAll}, func(r AppendResult) { answers <- answer{n, r.Err} })
		}
		if flying == 0 {
			continue
		}
		select {
		case a := <-answers:
			flying--
			switch {
			case a.err == nil && !failing:
				p.acked.Store(a.n + 1)
			case a.err == nil:
			case again(a.err), errors.Is(a.err, ErrAmbiguous), errors.Is(a.err, ErrOutOfOrderSequence):
				failing = true
			default:
				p.t.Errorf("%s: batch %d: %v", p.name, a.n, a.err)
				return top
			}
		case <-ctx.Done():
			p.t.Errorf("%s: %d in flight are not answered, %d are acknowledged", p.name, flying, p.acked.Load())
			return top
		}
	}
}

// checkOnce holds a log against what producers wrote: everything once and in order.
func checkOnce(t testing.TB, got []string, names map[string]int64) {
	t.Helper()
	next := map[string]int64{}
	for at, v := range got {
		var name string
		var n int64
		for candidate := range names {
			if _, err := fmt.Sscanf(v, candidate+"-%d", &n); err == nil {
				name = candidate
			}
		}
		if n != next[name] {
			t.Fatalf("offset %d has %q, %s-%d is due", at, v, name, next[name])
		}
		next[name]++
	}
	for name, n := range names {
		if next[name] != n {
			t.Errorf("%d batches of %s are there, acknowledged are %d", next[name], name, n)
		}
	}
}

// Leadership moves, and links break, while idempotent producers on all nodes have full windows in flight.
func TestRouteLeaderMoves(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	ctx, cancel := context.WithTimeout(context.Background(), 4*testTimeout)
	defer cancel()
	var ending atomic.Bool
	counts := map[string]int64{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	producers := make([]*windowProducer, 4)
	for i := range producers {
		p := &windowProducer{t: t, route: r.route(i), id: int64(100 + i), name: fmt.Sprintf("node%d", i+1)}
		producers[i] = p
		wg.Go(func() {
			n := p.run(ctx, ending.Load)
			mu.Lock()
			counts[p.name] = n
			mu.Unlock()
		})
	}
	for round := range 8 {
		l := r.leader(-1)
		target := producers[outsider].acked.Load() + 50
		for producers[outsider].acked.Load() < target {
			if !pause(ctx, time.Millisecond) {
				r.dump()
				t.Fatal("the node without a replica gets nothing acknowledged")
			}
		}
		if round%2 == 0 {
			r.transfer(l, (l+1)%3)
		} else {
			r.net.Reset(nodeName(outsider+1), nodeName(int32(l+1)))
		}
	}
	ending.Store(true)
	wg.Wait()
	retries := int64(0)
	total := int64(0)
	for _, p := range producers {
		retries += p.retries.Load()
		total += counts[p.name]
	}
	t.Logf("%d batches, %d windows sent again", total, retries)
	waitHW(t, r.parts[0], total)
	checkOnce(t, values(t, r.parts[0], 0), counts)
}

// A leader that stops in silence holds nobody up longer than it takes to have another one.
func TestRouteLeaderFallsSilent(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	route := r.route(outsider)
	appendTo(t, route, textBatch(t, "before"))
	l := r.leader(-1)
	for other := range 4 {
		if other != l {
			r.net.Cut(nodeName(int32(l+1)), nodeName(int32(other+1)), transport.CutSilent)
			r.net.Cut(nodeName(int32(other+1)), nodeName(int32(l+1)), transport.CutSilent)
		}
	}
	answers := make(chan AppendResult, 4)
	for i := range 4 {
		route.Append(textBatch(t, fmt.Sprint("lost", i)), AppendOptions{Acks: AcksAll}, func(r AppendResult) { answers <- r })
	}
	began := time.Now()
	for range 4 {
		select {
		case a := <-answers:
			if !errors.Is(a.Err, ErrAmbiguous) {
				t.Errorf("answer %v, want an unknown outcome", a.Err)
			}
		case <-time.After(testTimeout):
			t.Fatal("a silent leader holds batches")
		}
	}
	if took := time.Since(began); took > forwardTimeout/2 {
		t.Errorf("it took %v to give them up", took)
	}
	res := appendTo(t, route, textBatch(t, "after"))
	if res.Offset < 1 {
		t.Errorf("offset %d", res.Offset)
	}
	r.net.Heal()
	waitHW(t, r.parts[l], res.Offset+1)
	if got := values(t, r.parts[l], 0); got[res.Offset] != "after" {
		t.Errorf("the old leader has %v", got)
	}
}

// Batches of one route arrive in order whatever the network does to single requests: nothing that one producer of sequences sends is out of order
// while the leader stays.
func TestRouteKeepsOrder(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	p := &windowProducer{t: t, route: r.route(outsider), id: 7, name: "n"}
	const batches = 2000
	var stop atomic.Bool
	n := p.run(testContext(t), func() bool { return stop.Load() || p.acked.Load() >= batches })
	if p.retries.Load() > batches/100 {
		t.Errorf("%d windows were sent again", p.retries.Load())
	}
	waitHW(t, r.parts[0], n)
	checkOnce(t, values(t, r.parts[0], 0), map[string]int64{"n": n})
}

// Whatever is under way when a node closes is answered, and the node closes soon.
func TestRouteCloseUnderLoad(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	route := r.route(outsider)
	appendTo(t, route, textBatch(t, "a"))
	l := r.leader(-1)
	r.net.Cut(nodeName(int32(l+1)), nodeName(outsider+1), transport.CutSilent) // no answer comes
	answers := make(chan AppendResult, 20)
	for i := range 20 {
		route.Append(textBatch(t, fmt.Sprint(i)), AppendOptions{Acks: AcksAll}, func(r AppendResult) { answers <- r })
	}
	c := route.NewCursor()
	ch := make(chan struct{}, 1)
	cancel := route.Notify(ch)
	if _, err := c.Read(nil, 0, 1000); err != nil {
		t.Error(err)
	}
	waiting := make(chan error, 2)
	go func() { waiting <- route.Refresh(context.Background()) }()
	go func() { waiting <- c.Wait(context.Background()) }()
	r.stop(outsider)
	for range 20 {
		select {
		case a := <-answers:
			if a.Err == nil {
				t.Error("acknowledged without an answer")
			}
		case <-time.After(testTimeout):
			t.Fatal("not answered")
		}
	}
	for range 2 {
		select {
		case <-waiting:
		case <-time.After(testTimeout):
			t.Fatal("still waiting")
		}
	}
	cancel()
	c.Close()
	done := make(chan AppendResult, 1)
	route.Append(textBatch(t, "late"), AppendOptions{}, func(r AppendResult) { done <- r })
	if a := <-done; !errors.Is(a.Err, ErrClosed) {
		t.Errorf("append after close: %v", a.Err)
	}
	if s, _ := route.State(); s != StateClosed {
		t.Errorf("state %v", s)
	}
}
