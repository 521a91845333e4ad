package replication

import (
	"testing"
	"time"
)

// Whoever watches hears of a leadership that begins and of one that ends, and finds the state changed already.
func TestLeadershipIsTold(t *testing.T) {
	n := newTestNode(t)
	defer n.close()
	told := make(chan PartitionState, 16)
	n.host.leadership.add(func(p *Partition) {
		s, _ := p.State()
		told <- s
	})
	p := n.start(testSpec(t, 1), true)
	expect := func(want PartitionState) {
		t.Helper()
		select {
		case got := <-told:
			if got != want {
				t.Errorf("told of state %v, want %v", got, want)
			}
		case <-time.After(testTimeout):
			t.Fatalf("not told of state %v", want)
		}
	}
	expect(StateLeader)
	if err := n.host.RemovePartition(testContext(t), p); err != nil {
		t.Fatal(err)
	}
	expect(StateClosed)
}
