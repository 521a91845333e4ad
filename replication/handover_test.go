package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// followingProducer is one that follows the leader: it notes what was acknowledged, where, and when.
type followingProducer struct {
	c     *trio
	acked map[int64]string
	gap   time.Duration // longest time between two acknowledgements
	stop  chan struct{}
	wg    sync.WaitGroup
}

// follow starts a producer that sends one batch after the other to whoever leads.
func follow(c *trio) *followingProducer {
	l := &followingProducer{c: c, acked: map[int64]string{}, stop: make(chan struct{})}
	changed := make(chan struct{}, 1)
	for _, p := range c.parts {
		p.Notify(changed)
	}
	l.wg.Go(func() {
		last := time.Now()
		for i := 0; ; i++ {
			select {
			case <-l.stop:
				return
			default:
			}
			v := fmt.Sprint("v", i)
			at, ok := l.send(v, changed)
			if !ok {
				continue
			}
			now := time.Now()
			l.gap, last = max(l.gap, now.Sub(last)), now
			l.acked[at] = v
		}
	})
	return l
}

func (l *followingProducer) send(v string, changed <-chan struct{}) (at int64, ok bool) {
	for _, p := range l.c.parts {
		if s, _ := p.State(); s != StateLeader {
			continue
		}
		switch r := appendBatch(l.c.t, p, textBatch(l.c.t, v), AcksAll); {
		case r.Err == nil:
			return r.Offset, true
		case !errors.Is(r.Err, ErrNotLeader) && !errors.Is(r.Err, ErrAmbiguous) && !errors.Is(r.Err, ErrBusy) && !errors.Is(r.Err, ErrClosed):
			l.c.t.Errorf("%q: %v", v, r.Err)
		}
	}
	select {
	case <-changed:
	case <-l.stop:
	case <-time.After(time.Millisecond):
	}
	return 0, false
}

// check ends the producer and holds what it was told against the replicas that are given.
func (l *followingProducer) check(nodes ...int) {
	t := l.c.t
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	hw := int64(0)
	for at := range l.acked {
		hw = max(hw, at+1)
	}
	for _, i := range nodes {
		waitHW(t, l.c.parts[i], hw)
		got := values(t, l.c.parts[i], 0)
		for at, v := range l.acked {
			if got[at] != v {
				t.Errorf("node %d has %q at %d, acknowledged was %q", i+1, got[at], at, v)
			}
		}
	}
}

func TestHandOverUnderLoad(t *testing.T) {
	for name, tcp := range map[string]bool{"memory": false, "tcp": true} {
		t.Run(name, func(t *testing.T) {
			c := newPatientTrioOver(t, 0, tcp)
			defer c.close()
			c.produce(-1, "first")
			l := follow(c)
			eventually(t, "the first acknowledgements", func() bool { return c.parts[0].HighWatermark() > 20 })
			for leader, moves := 0, 0; moves < 6; moves++ {
				p := c.parts[leader]
				at := p.HighWatermark()
				next := (leader + 1) % 3
				if err := p.transferLeadership(testContext(t), c.parts[next].spec.Replica); err != nil {
					t.Fatal(err)
				}
				leader = next
				writable(t, c.parts[leader])
				eventually(t, "further acknowledgements", func() bool { return c.parts[leader].HighWatermark() > at+10 })
			}
			l.check(0, 1, 2)
			t.Logf("longest time without an acknowledgement over 6 moves: %v; %d were acknowledged", l.gap, len(l.acked))
			if l.gap >= patientBound {
				t.Errorf("an election timeout went by: %v", l.gap)
			}
		})
	}
}

// A node that closes gives away what it leads first.
func TestCloseHandsOver(t *testing.T) {
	c := newPatientTrio(t, 1)
	c.produce(-1, "first")
	l := follow(c)
	eventually(t, "the first acknowledgements", func() bool { return c.parts[1].HighWatermark() > 20 })
	if err := c.nodes[1].host.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	left := c.leader(1) // nobody could tell by silence: the transport is still there
	at := c.parts[left].HighWatermark()
	eventually(t, "further acknowledgements", func() bool { return c.parts[left].HighWatermark() > at+10 })
	l.check(0, 2)
	t.Logf("longest time without an acknowledgement: %v", l.gap)
	if l.gap >= patientBound {
		t.Errorf("an election timeout went by: %v", l.gap)
	}
	c.close()
}

// HandOver leaves a node without leaderships, and counts what it could not give away.
func TestHandOver(t *testing.T) {
	c := newPatientTrio(t, 0)
	defer c.close()
	c.produce(-1, "a")
	h := c.nodes[0].host
	if left := h.HandOver(testContext(t)); left != 0 {
		t.Errorf("%d are left", left)
	}
	l, at := c.produce(0, "b")
	if l == 0 || at != 1 {
		t.Errorf("node %d gave offset %d", l+1, at)
	}
	if left := h.HandOver(testContext(t)); left != 0 {
		t.Errorf("a follower has %d left", left)
	}
	if err := c.parts[0].transferLeadership(testContext(t), replicaID(2, 1)); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a follower handed over: %v", err)
	}
}

// A transfer that its target does not take ends with the context, and the leader goes on.
func TestHandOverToNobody(t *testing.T) {
	c := newTrio(t)
	defer c.close()
	l, _ := c.produce(-1, "a")
	p, f := c.parts[l], followerOf(l)
	c.net.isolate(int32(f+1), true)
	eventually(t, "the follower is out of reach", func() bool { return !c.nodes[l].host.reachable(int32(f + 1)) })
	for _, v := range p.heirs() {
		if v == c.parts[f].spec.Replica {
			t.Error("who cannot be reached is to lead")
		}
	}
	ctx := testContext(t)
	err := func() error {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		return p.transferLeadership(ctx, c.parts[f].spec.Replica)
	}()
	if err == nil {
		t.Error("nobody took over, and no error")
	}
	if _, at := c.produce(f, "b"); at != 1 {
		t.Errorf("offset %d", at)
	}
}

// A partition does not stand still for long because the one that shall lead it does not come.
func TestTransferToSilentNodeIsBounded(t *testing.T) {
	c := newPatientTrio(t, 0)
	defer c.close()
	c.produce(-1, "a")
	c.net.isolate(2, true)
	ctx := testContext(t)
	if err := c.parts[0].transferLeadership(ctx, replicaID(2, 1)); err == nil || ctx.Err() != nil {
		t.Errorf("a transfer to a node that is cut off: %v; the caller's time: %v", err, ctx.Err())
	}
	c.net.isolate(2, false)
	c.produce(-1, "b")
}
