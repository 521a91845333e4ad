package replication

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/transport"
)

// A node comes back that knows nothing yet of its replica having been taken away, and the files are gone already: that is no damage.
func TestTakenAwayIsNotQuarantined(t *testing.T) {
	t.Parallel() // it waits, mostly
	h := newHerd(t, 4, nil)
	defer h.closeAll()
	h.groupOn("t", nil, 1, 2, 3)
	h.groupOn("kept", nil, 1, 2, 3)
	end := h.produce("t", "a")
	const away = 2
	folder := func(topic string) string {
		p := h.replica(away, topic)
		return fmt.Sprintf("/data/%s/%d-%d", partitionsDir, p.spec.Shard, p.spec.Replica)
	}
	gone, lost := folder("t"), folder("kept")
	h.down(away)
	if err := h.live().Controller.Reassign(testContext(t), "t", 0, []int32{1, 2, 4}); err != nil {
		t.Fatal(err)
	}
	h.settled("t", end, 0, 1, 3)
	if err := h.fs[away].RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	h.up(away)
	if h.seen(away, EventQuarantined) {
		t.Error("a replica that was taken away is told to be damaged")
	}
	if p := h.replica(away, "t"); p != nil {
		t.Errorf("it runs: %x", p.spec.Replica)
	}
	// Files that should be there are missed.
	h.down(away)
	if err := h.fs[away].RemoveAll(lost); err != nil {
		t.Fatal(err)
	}
	h.up(away)
	h.eventually("it is told", func() bool { return h.seen(away, EventQuarantined) })
	h.settled("kept", 0, 0, 1, 2)
}

// A node comes back with an empty disk and a clock that is behind: the others take it for an earlier life of the id at first, and for the next one when
// it is opened again.
func TestWipedWithClockBehind(t *testing.T) {
	t.Parallel() // it waits, mostly
	var behind atomic.Int64
	h := newHerd(t, 3, func(c *HostConfig) {
		skew := time.Duration(behind.Load()) // of the nodes opened from now on
		c.Now = func() time.Time { return time.Now().Add(-skew) }
	})
	defer h.closeAll()
	h.topic("t", nil)
	end := h.produce("t", "a")
	h.down(2)
	h.fs[2] = vfs.NewMem()
	behind.Store(int64(time.Hour))
	if m, err := h.tryOpen(h.config(2)); !errors.Is(err, transport.ErrDuplicateNode) {
		h.all[2] = m
		t.Fatalf("the first time it opens with %v", err)
	}
	h.up(2)
	h.settled("t", end, 0, 1, 2)
}
