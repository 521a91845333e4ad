package replication

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lni/dragonboat/v4/raftio"

	"github.com/billetlog/billet/internal/vfs"
)

// A candidate's event and the leader's have one term, and both come before dragonboat publishes the leader: the first must not be acted on with
// what was published for an earlier one, nor the second be missed.
func TestSettleWaitsForWhatWasHeard(t *testing.T) {
	n := memNodeWith(t, vfs.NewMem(), 0)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	self, term, ok := n.host.guard.leader(p.spec.Shard)
	if !ok || self != p.spec.Replica {
		t.Fatalf("leader %x, term %d, %v", self, term, ok)
	}
	ctx := testContext(t)
	settle := func(heard raftio.LeaderInfo) (retry bool) { return p.settleLeadership(ctx, heard, false) }
	for _, c := range []struct {
		what  string
		heard raftio.LeaderInfo
		retry bool
	}{
		{"nothing", raftio.LeaderInfo{}, false},
		{"what is published", raftio.LeaderInfo{Term: term, LeaderID: self}, false},
		{"an earlier term", raftio.LeaderInfo{Term: term - 1, LeaderID: 77}, false},
		{"the same term without a leader", raftio.LeaderInfo{Term: term}, true},
		{"the same term with another leader", raftio.LeaderInfo{Term: term, LeaderID: 77}, true},
		{"a candidate of the next term", raftio.LeaderInfo{Term: term + 1}, true},
		{"a leader of the next term", raftio.LeaderInfo{Term: term + 1, LeaderID: self}, true},
	} {
		if got := settle(c.heard); got != c.retry {
			t.Errorf("%s was heard: try again is %v", c.what, got)
		}
		if s, _ := p.State(); s != StateLeader {
			t.Errorf("%s was heard: the partition is %v", c.what, s)
		}
	}
	// A partition that was stopped is not tried again, however far ahead the event is.
	p.r.latch(errors.New("EIO"))
	waitEvent(t, n, EventReplicaFailed)
	if settle(raftio.LeaderInfo{Term: term + 9, LeaderID: self}) {
		t.Error("a failed partition is tried again for ever")
	}
	if s, cause := p.State(); s != StateFailed || !errors.Is(cause, ErrFailed) {
		t.Errorf("the partition is %v, %v", s, cause)
	}
	_ = n.host.Close(testContext(t))
}

// Whoever stops a partition has the last word: an elector that is about to lead does not open the appender again.
func TestStoppedNeverLeads(t *testing.T) {
	n := memNodeWith(t, vfs.NewMem(), 0)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	term := uint64(p.Epoch())
	for _, state := range []PartitionState{StateFailed, StateClosed} {
		p.loseLeadership(fmt.Errorf("%w: stopped", ErrAmbiguous), state, fmt.Errorf("%w: stopped", ErrFailed))
		for _, late := range []func(){
			func() { p.beginLeading(term) },
			func() { p.drain(testContext(t)) },
			func() { p.loseLeadership(ErrNotLeader, StateFollower, nil) },
			func() { p.settleLeadership(testContext(t), raftio.LeaderInfo{}, true) },
		} {
			late()
			if s, _ := p.State(); s != state || p.Epoch() != 0 {
				t.Errorf("the partition was %v, is %v with epoch %d", state, s, p.Epoch())
			}
			if r := appendBatch(t, p, textBatch(t, "x"), AcksAll); r.Err == nil {
				t.Errorf("an append to a partition that is %v was answered %+v", state, r)
			}
		}
	}
	n.close()
}
