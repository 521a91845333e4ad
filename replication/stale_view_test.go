package replication

import (
	"fmt"
	"testing"
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
