package replication

import (
	"fmt"
	"testing"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// quietHooks is a partition that hears nothing.
type quietHooks struct{ progressed int }

func (*quietHooks) onStored(int64, int) {}
func (*quietHooks) onLatched(error)     {}
func (h *quietHooks) onProgress()       { h.progressed++ }

// isrRig drives the record of a leader, replica 1 of three, by a clock of its own.
type isrRig struct {
	r    *replica
	hook *quietHooks
	now  time.Duration
	last uint64
}

const isrRigLag = time.Second

func newISRRig() *isrRig {
	hook := &quietHooks{}
	c := &isrRig{r: &replica{hooks: hook}, hook: hook}
	c.r.beginProgress(5, 0)
	return c
}

func (c *isrRig) answer(from uint64, m pb.Message) {
	m.From = from
	if m.Term == 0 {
		m.Term = 5
	}
	c.r.observe(&m, int64(c.now))
}

func (c *isrRig) stored(from, index uint64) {
	c.answer(from, pb.Message{Type: pb.ReplicateResp, LogIndex: index})
}
func (c *isrRig) beat(from uint64) { c.answer(from, pb.Message{Type: pb.HeartbeatResp}) }

func (c *isrRig) expect(t *testing.T, why, want string) {
	t.Helper()
	g := c.r.progress.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	if got := fmt.Sprint(g.inSyncLocked(1, []uint64{1, 2, 3}, c.last, int64(c.now), int64(isrRigLag))); got != want {
		t.Errorf("%s: in sync are %s, want %s", why, got, want)
	}
}

// look is what happens from time to time.
func (c *isrRig) look() {
	g := c.r.progress.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inSyncLocked(1, []uint64{1, 2, 3}, c.last, int64(c.now), int64(isrRigLag))
}

func TestInSyncRules(t *testing.T) {
	t.Run("a new leader doubts nobody until the bound is over", func(t *testing.T) {
		c := newISRRig()
		c.last = 10
		c.expect(t, "at first", "[1 2 3]")
		c.now = isrRigLag
		c.stored(2, 10)
		c.expect(t, "at the bound", "[1 2 3]")
		c.now++
		c.expect(t, "behind it", "[1 2]")
	})
	t.Run("who is silent falls out, who answers comes back", func(t *testing.T) {
		c := newISRRig()
		c.stored(2, 0)
		c.stored(3, 0)
		for range 10 {
			c.now += isrRigLag / 5
			c.beat(2)
		}
		c.expect(t, "one was silent", "[1 2]")
		c.beat(3)
		c.expect(t, "it answers and lacks nothing", "[1 2 3]")
	})
	t.Run("living without storing is not enough", func(t *testing.T) {
		c := newISRRig()
		c.stored(2, 0)
		c.stored(3, 0)
		for range 11 {
			c.last += 10
			c.expect(t, "while it goes on", "[1 2 3]")
			c.now += isrRigLag / 10
			c.stored(2, c.last)
			c.beat(3)
		}
		c.expect(t, "one stored nothing", "[1 2]")
		c.answer(3, pb.Message{Type: pb.ReplicateResp, LogIndex: c.last, Reject: true})
		c.answer(3, pb.Message{Type: pb.ReplicateResp, LogIndex: c.last, Term: 4})
		c.expect(t, "a rejection and an answer of an earlier term say nothing", "[1 2]")
		c.stored(3, c.last)
		c.expect(t, "it stored all", "[1 2 3]")
	})
	// Kafka's rule: a replica that always has what the log held a little while ago is in sync, although it never has all.
	t.Run("steadily behind within the bound", func(t *testing.T) {
		c := newISRRig()
		var ends []uint64
		for i := range 100 {
			c.now += isrRigLag / 10
			c.last += 7
			ends = append(ends, c.last)
			if i >= 8 {
				c.stored(2, ends[i-8]) // 0.8 of the bound ago
			}
			if i >= 12 {
				c.stored(3, ends[i-12]) // 1.2
			} else {
				c.beat(3)
			}
			if i >= 20 {
				c.expect(t, fmt.Sprint("round ", i), "[1 2]")
			} else if i < 5 {
				c.expect(t, fmt.Sprint("round ", i), "[1 2 3]")
			} else {
				c.look()
			}
		}
		if g := c.r.progress.Load(); len(g.mu.marks) > progressMarks+2 {
			t.Errorf("%d marks are kept", len(g.mu.marks))
		}
	})
	t.Run("a later term begins anew", func(t *testing.T) {
		c := newISRRig()
		c.stored(2, 9)
		c.answer(2, pb.Message{Type: pb.ReplicateResp, LogIndex: 3, Term: 6})
		if g := c.r.progress.Load(); g.term != 6 || g.matchOf(2) != 3 {
			t.Errorf("term %d, match %d", g.term, g.matchOf(2))
		}
		if c.r.beginProgress(5, 0).term != 6 {
			t.Error("an earlier term came back")
		}
	})
}

// A match never falls, each rise is told, and strange peers take no memory without bound.
func TestObserve(t *testing.T) {
	c := newISRRig()
	c.stored(2, 5)
	c.stored(2, 4)
	c.stored(2, 5)
	c.stored(2, 6)
	if g := c.r.progress.Load(); g.matchOf(2) != 6 || c.hook.progressed != 2 {
		t.Errorf("match %d, told %d times", g.matchOf(2), c.hook.progressed)
	}
	for i := range uint64(2 * progressPeersMax) {
		c.stored(100+i, 1)
	}
	if n := len(*c.r.progress.Load().peers.Load()); n != progressPeersMax {
		t.Errorf("%d replicas are followed", n)
	}
}
