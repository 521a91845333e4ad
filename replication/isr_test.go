package replication

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/batch"
)

// awaitEvent waits for an event of the kind, and returns those that came before it.
func (n *testNode) awaitEvent(kind EventKind) (before []Event) {
	n.t.Helper()
	deadline := time.After(testTimeout)
	for {
		select {
		case e := <-n.events:
			if e.Kind == kind {
				return before
			}
			before = append(before, e)
		case <-deadline:
			n.t.Fatalf("no event %s; heard were %v", kind, before)
		}
	}
}

func demand(c *trio, replicas int) {
	for _, p := range c.parts {
		s := *p.settings.Load()
		s.MinInsyncReplicas = replicas
		p.SetSettings(s)
	}
}

// followerOf is a node that does not lead.
func followerOf(leader int) int { return (leader + 1) % 3 }

func TestISRShrinksAndGrows(t *testing.T) {
	t.Parallel() // it waits, mostly
	c := newTrioWith(t, func(n *testNode) { n.lag = time.Second })
	defer c.close()
	l, _ := c.produce(-1, "a")
	p, f := c.parts[l], followerOf(l)
	told := make(chan struct{}, 64)
	c.nodes[l].host.leadership.add(func(q *Partition) {
		if q == p {
			told <- struct{}{}
		}
	})
	if in := p.InSync(); len(in) != 3 {
		t.Fatalf("in sync are %x", in)
	}
	c.net.isolate(int32(f+1), true)
	c.nodes[l].awaitEvent(EventISRShrink)
	c.nodes[l].awaitEvent(EventUnderReplicated)
	<-told
	in := p.InSync()
	if len(in) != 2 || in[0] == c.parts[f].spec.Replica || in[1] == c.parts[f].spec.Replica {
		t.Errorf("in sync are %x", in)
	}
	c.produce(f, "b")
	r := p.Replication()
	if !r.Leading || r.Leader != p.spec.Replica || r.Epoch != p.Epoch() || len(r.Replicas) != 3 {
		t.Errorf("%+v", r)
	}
	for _, s := range r.Replicas {
		lost := s.Replica == c.parts[f].spec.Replica
		if s.InSync == lost || !s.Voter || s.Node != nodeOf(s.Replica) || lost && (time.Since(s.LastHeard) < time.Second || s.Match >= p.r.storedTo.Load()) {
			t.Errorf("%+v", s)
		}
	}
	c.net.isolate(int32(f+1), false)
	before := c.nodes[l].awaitEvent(EventReplicated)
	grown := 0
	for _, e := range before {
		if e.Kind == EventISRGrow {
			grown++
		}
	}
	if grown != 1 {
		t.Errorf("heard %v", before)
	}
	<-told
	eventually(t, "the follower is caught up", func() bool { return p.caughtUp(c.parts[f].spec.Replica) })
	if p.caughtUp(replicaID(9, 1)) || c.parts[f].caughtUp(p.spec.Replica) || c.parts[f].InSync() != nil {
		t.Error("a stranger is caught up, or a follower knows what only the leader does")
	}
	eventually(t, "a follower knows who leads", func() bool { return c.parts[f].Replication().Leader == p.spec.Replica })
}

// acks=all is refused, and nothing written, while fewer are in sync than min.insync.replicas; acks=1 is not.
func TestNotEnoughReplicas(t *testing.T) {
	t.Parallel() // it waits, mostly
	c := newTrioWith(t, func(n *testNode) { n.lag = time.Second })
	defer c.close()
	l, _ := c.produce(-1, "a")
	p, f := c.parts[l], followerOf(l)
	demand(c, 3)
	if r := appendBatch(t, p, textBatch(t, "b"), AcksAll); r.Err != nil {
		t.Fatal(r.Err)
	}
	c.net.isolate(int32(f+1), true)
	c.nodes[l].awaitEvent(EventISRShrink)
	end := p.EndOffset()
	r := appendBatch(t, p, textBatch(t, "c"), AcksAll)
	if !errors.Is(r.Err, ErrNotEnoughReplicas) || errors.Is(r.Err, ErrAmbiguous) || p.EndOffset() != end {
		t.Errorf("%v, the log ends at %d", r.Err, p.EndOffset())
	}
	if r := appendBatch(t, p, textBatch(t, "d"), AcksLeader); r.Err != nil {
		t.Error(r.Err)
	}
	demand(c, 2)
	if r := appendBatch(t, p, textBatch(t, "e"), AcksAll); r.Err != nil {
		t.Error(r.Err)
	}
	demand(c, 3)
	c.net.isolate(int32(f+1), false)
	eventually(t, "three are in sync again", func() bool { return appendBatch(t, p, textBatch(t, "f"), AcksAll).Err == nil })
	demand(c, 4)
	if r := appendBatch(t, p, textBatch(t, "g"), AcksAll); !errors.Is(r.Err, ErrNotEnoughReplicas) {
		t.Error(r.Err)
	}
}

// A partition on one node cannot have two replicas in sync.
func TestNotEnoughReplicasAlone(t *testing.T) {
	n := newTestNode(t)
	defer n.close()
	spec := testSpec(t, 1)
	spec.Settings.MinInsyncReplicas = 2
	p := n.start(spec, true)
	writable(t, p)
	if r := appendBatch(t, p, textBatch(t, "a"), AcksAll); !errors.Is(r.Err, ErrNotEnoughReplicas) || p.EndOffset() != 0 {
		t.Error(r.Err)
	}
}

// sequencedBatch is a batch of an idempotent producer.
func sequencedBatch(t testing.TB, sequence int32, value string) batch.Batch {
	t.Helper()
	var b batch.Builder
	b.Reset(batch.BuilderOptions{HasProducer: true, ProducerID: 77, BaseSequence: sequence})
	b.Append(time.Now().UnixMilli(), nil, []byte(value), nil)
	out, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Above the majority the answer waits, although readers see the batch, until enough replicas have it.
func TestAnswerWaitsForReplicas(t *testing.T) {
	c := newTrioWith(t, func(n *testNode) { n.lag = MaxReplicaLagTimeMax })
	defer c.close()
	l, _ := c.produce(-1, "a")
	p, f := c.parts[l], followerOf(l)
	demand(c, 3)
	c.net.isolate(int32(f+1), true)
	answers := make(chan AppendResult, 3)
	done := func(r AppendResult) { answers <- r }
	p.Append(sequencedBatch(t, 0, "b"), AppendOptions{Acks: AcksAll}, done)
	p.Append(sequencedBatch(t, 1, "c"), AppendOptions{Acks: AcksAll}, done)
	waitHW(t, p, 3)
	p.Append(sequencedBatch(t, 0, "b"), AppendOptions{Acks: AcksAll}, done) // again, as a producer does that waited too long
	select {
	case r := <-answers:
		t.Fatalf("answered while two of three had it: %+v", r)
	default:
	}
	if n := p.holding.Load(); n != 3 {
		t.Errorf("%d answers are held", n)
	}
	c.net.isolate(int32(f+1), false)
	for _, want := range []int64{1, 2, 1} {
		if r := take(t, answers); r.Err != nil || r.Offset != want {
			t.Errorf("%+v, want offset %d", r, want)
		}
	}
	if p.HighWatermark() != 3 {
		t.Errorf("high watermark %d", p.HighWatermark())
	}
}

// Waiting ends after the lag bound; the batch is there, and a retry of an idempotent producer finds it.
func TestAnswerGivenUp(t *testing.T) {
	t.Parallel() // it waits, mostly
	c := newTrioWith(t, func(n *testNode) { n.lag = time.Second })
	defer c.close()
	l, _ := c.produce(-1, "a")
	p, f := c.parts[l], followerOf(l)
	demand(c, 3)
	c.net.isolate(int32(f+1), true)
	r := appendBatch(t, p, sequencedBatch(t, 0, "b"), AcksAll)
	if !errors.Is(r.Err, ErrNotEnoughReplicasAfterAppend) || !errors.Is(r.Err, ErrAmbiguous) || errors.Is(r.Err, ErrNotEnoughReplicas) || p.HighWatermark() != 2 {
		t.Errorf("%v, high watermark %d", r.Err, p.HighWatermark())
	}
	c.nodes[l].awaitEvent(EventISRShrink)
	c.net.isolate(int32(f+1), false)
	eventually(t, "the retry is answered", func() bool {
		r = appendBatch(t, p, sequencedBatch(t, 0, "b"), AcksAll)
		return !errors.Is(r.Err, ErrNotEnoughReplicas)
	})
	if r.Err != nil || r.Offset != 1 || p.HighWatermark() != 2 {
		t.Errorf("%+v, high watermark %d", r, p.HighWatermark())
	}
}

// What is held when leadership ends is answered.
func TestHeldAnswersEndWithLeadership(t *testing.T) {
	c := newTrioWith(t, func(n *testNode) { n.lag = MaxReplicaLagTimeMax })
	l, _ := c.produce(-1, "a")
	p, f := c.parts[l], followerOf(l)
	demand(c, 3)
	c.net.isolate(int32(f+1), true)
	answers := make(chan AppendResult, 1)
	p.Append(textBatch(t, "b"), AppendOptions{Acks: AcksAll}, func(r AppendResult) { answers <- r })
	waitHW(t, p, 2)
	c.close()
	if r := take(t, answers); !errors.Is(r.Err, ErrNotEnoughReplicasAfterAppend) {
		t.Errorf("%+v", r)
	}
}

// A member that is added is a voter for the leader and for those who would elect the next one.
func TestVotersFollowMembership(t *testing.T) {
	c := newTrio(t)
	defer c.close()
	l, _ := c.produce(-1, "a")
	h := c.nodes[l].host
	ctx := testContext(t)
	err := func(ctx context.Context) error {
		h.guard.mu.RLock()
		defer h.guard.mu.RUnlock()
		return h.guard.nh.SyncRequestAddReplica(ctx, 2, replicaID(4, 1), nodeName(4), 0)
	}(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint([]uint64{replicaID(1, 1), replicaID(2, 1), replicaID(3, 1), replicaID(4, 1)})
	for i, p := range c.parts {
		eventually(t, fmt.Sprint("node ", i+1, " knows the fourth"), func() bool { return fmt.Sprint(p.voters()) == want })
	}
	eventually(t, "the leader knows of four", func() bool { return len(c.parts[c.leader(-1)].Replication().Replicas) == 4 })
}
