package replication

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/segment"
)

func quickScrub(c *HostConfig) { c.scrubRest, c.ScrubBytesPerSecond = 50*time.Millisecond, 64<<20 }

var smallSegments = map[string]string{"segment.bytes": "1048576"}

// fill produces more than two segments.
func (h *herd) fill(topic string) (end int64) {
	h.t.Helper()
	value := strings.Repeat("v", 300<<10)
	for range 8 {
		end = h.produce(topic, value)
	}
	return end
}

// Damage in a sealed segment is found without anybody reading there, on the leader as on a follower; the replica is replaced, and is whole then.
func TestScrubReplaces(t *testing.T) {
	t.Parallel() // it waits, mostly
	for _, of := range []string{"leader", "follower"} {
		t.Run(of, func(t *testing.T) {
			h := newHerd(t, 3, quickScrub)
			defer h.closeAll()
			h.topic("t", smallSegments)
			end := h.fill("t")
			i := h.leader("t")
			if of == "follower" {
				i = (i + 1) % 3
			}
			p := h.replica(i, "t")
			h.eventually("all is here", func() bool { return p.HighWatermark() == end })
			h.flip(i, p.spec.key(), p.r.currentLog().Segments(), 1)
			h.eventually("the replica is taken out", func() bool { return h.seen(i, EventQuarantined) })
			h.eventually("it is replaced", func() bool {
				now := h.replica(i, "t")
				return now != nil && now.spec.Replica != p.spec.Replica
			})
			end = h.produce("t", "after")
			h.settled("t", end, 0, 1, 2)
		})
	}
}

// What a reader finds damaged is looked at at once, without a scrubber.
func TestDamageFoundByReader(t *testing.T) {
	t.Parallel() // it waits, mostly
	h := newHerd(t, 3, func(c *HostConfig) { c.ScrubBytesPerSecond = -1 })
	defer h.closeAll()
	h.topic("t", smallSegments)
	end := h.fill("t")
	i := (h.leader("t") + 1) % 3
	p := h.replica(i, "t")
	h.eventually("all is here", func() bool { return p.HighWatermark() == end })
	segments := p.r.currentLog().Segments()
	h.flip(i, p.spec.key(), segments, 1)
	p.Suspect(segments[1].BaseOffset)
	h.eventually("it is replaced", func() bool {
		now := h.replica(i, "t")
		return now != nil && now.spec.Replica != p.spec.Replica
	})
	h.settled("t", end, 0, 1, 2)
}

// A group of one goes on with what is good.
func TestDamageAlone(t *testing.T) {
	t.Parallel() // it waits, mostly
	h := newHerd(t, 1, quickScrub)
	defer h.closeAll()
	h.topic("t", smallSegments)
	end := h.fill("t")
	p := h.replica(0, "t")
	segments := p.r.currentLog().Segments()
	h.flip(0, p.spec.key(), segments, 1)
	h.eventually("it is told", func() bool { return h.seen(0, EventDamaged) })
	if h.seen(0, EventQuarantined) {
		t.Error("the only replica was taken out")
	}
	h.produce("t", "after")
	c := p.NewCursor()
	defer c.Close()
	if _, err := c.Read(nil, end, 1<<20); err != nil {
		t.Errorf("a good batch: %v", err)
	}
	if p.Damage() == nil || p.host.DamagedReplicas() != 1 {
		t.Errorf("damage is %v, %d replicas have some", p.Damage(), p.host.DamagedReplicas())
	}
}

// In a group of two neither can be spared at once: the damaged one works on until it is removed, and comes back whole.
func TestScrubOfTwo(t *testing.T) {
	t.Parallel() // it waits, mostly
	h := newHerd(t, 2, quickScrub)
	defer h.closeAll()
	h.topic("t", smallSegments)
	end := h.fill("t")
	i := h.leader("t")
	p := h.replica(i, "t")
	h.flip(i, p.spec.key(), p.r.currentLog().Segments(), 1)
	h.eventually("it is replaced", func() bool {
		now := h.replica(i, "t")
		return now != nil && now.spec.Replica != p.spec.Replica
	})
	h.settled("t", end, 0, 1)
}

// A new replica finds that what it is given is damaged: the one that gave it is replaced, and the new one gets its log from another.
func TestDamageFoundByPull(t *testing.T) {
	t.Parallel() // it waits, mostly
	h := newHerd(t, 4, func(c *HostConfig) { c.ScrubBytesPerSecond = -1 })
	defer h.closeAll()
	h.groupOn("t", smallSegments, 1, 2, 3)
	end := h.fill("t")
	i := h.leader("t")
	p := h.replica(i, "t")
	h.flip(i, p.spec.key(), p.r.currentLog().Segments(), 1)
	if err := h.all[i].Controller.SetReplicas(testContext(t), "t", 4); err != nil {
		t.Fatal(err)
	}
	h.eventually("the source is replaced", func() bool {
		now := h.replica(i, "t")
		return now != nil && now.spec.Replica != p.spec.Replica
	})
	h.settled("t", end, 0, 1, 2, 3)
}

// What is read for clients that tell of nothing is checked here: what is before the damage is given, the damage never, and it is looked at.
func TestReadChecked(t *testing.T) {
	t.Parallel() // it waits, mostly
	h := newHerd(t, 1, func(c *HostConfig) { c.ScrubBytesPerSecond = -1 })
	defer h.closeAll()
	h.topic("t", smallSegments)
	end := h.fill("t")
	p := h.replica(0, "t")
	segments := p.r.currentLog().Segments()
	h.flip(0, p.spec.key(), segments, 1)
	c := p.NewCursor()
	defer c.Close()
	var err error
	next := int64(0)
	for got := []byte(nil); err == nil && next < end; {
		if got, err = c.ReadChecked([]byte("before"), next, 4<<20); string(got[:6]) != "before" {
			t.Fatal("what was in the buffer is gone")
		}
		for rest := got[6:]; len(rest) > 0; {
			b, after, err := batch.Split(rest, 0)
			if err != nil || b.CheckCRC() != nil || b.BaseOffset() != next {
				t.Fatalf("offset %d where %d was due: %v, %v", b.BaseOffset(), next, err, b.CheckCRC())
			}
			next, rest = b.NextOffset(), after
		}
	}
	if !errors.Is(err, segment.ErrCorrupt) || next <= segments[1].BaseOffset || next >= segments[2].BaseOffset {
		t.Errorf("the reader came to %d: %v; segment 1 begins at %d, segment 2 at %d", next, err, segments[1].BaseOffset, segments[2].BaseOffset)
	}
	h.eventually("it is told", func() bool { return h.seen(0, EventDamaged) })
}

// While another voter is down, a damaged replica goes on: without it nobody could write. Readers of its node get everything from the leader meanwhile,
// and it is replaced when the other is back.
func TestDamageWhileOneIsDown(t *testing.T) {
	t.Parallel() // it waits, mostly
	h := newHerd(t, 3, func(c *HostConfig) { c.ScrubBytesPerSecond = -1 })
	defer h.closeAll()
	h.topic("t", smallSegments)
	end := h.fill("t")
	l := h.leader("t")
	i, other := (l+1)%3, (l+2)%3
	p := h.replica(i, "t")
	h.eventually("all is here", func() bool { return p.HighWatermark() == end })
	h.down(other)
	h.eventually("it is known to be down", func() bool { return !p.host.reachable(int32(other + 1)) })
	h.flip(i, p.spec.key(), p.r.currentLog().Segments(), 0)
	route, err := h.all[i].Controller.Router().Route("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	c := route.ReadLocal().NewCursor()
	defer c.Close()
	h.readAll(c, end)
	if !h.seen(i, EventDamaged) || h.seen(i, EventQuarantined) {
		t.Errorf("damage is %v", p.Damage())
	}
	end = h.produce("t", "after")
	h.up(other)
	h.eventually("it is replaced", func() bool {
		now := h.replica(i, "t")
		return now != nil && now.spec.Replica != p.spec.Replica
	})
	h.settled("t", end, 0, 1, 2)
}

// readAll reads whole batches and checks them, and says so when one is damaged.
func (h *herd) readAll(c *RouteCursor, end int64) {
	h.t.Helper()
	next := int64(0)
	h.eventually("all is read", func() bool {
		got, err := c.Read(nil, next, 1<<20)
		for err == nil && len(got) > 0 {
			var b batch.Batch
			if b, got, err = batch.Split(got, 0); err == nil {
				err = b.CheckCRC()
			}
			if err == nil {
				next = b.NextOffset()
			}
		}
		if err != nil {
			c.Suspect(next)
		}
		return next == end
	})
}
