package replication

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/internal/vfs"
)

// Far more replicas are removed than the slot has room for.
func TestRemovedReplicasAreForgotten(t *testing.T) {
	n := memNode1(t, vfs.NewMem())
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	const most = 2 * removedMax
	gone := func(i int) uint64 { return replicaID(2, uint32(10+i)) }
	for i := range most {
		mustChange(t, func(ctx context.Context) error { return p.Remove(ctx, gone(i)) })
	}
	s := p.r.record()
	s.Index++
	s.Membership.Removed = map[uint64]bool{}
	for i := range 5000 {
		s.Membership.Removed[gone(i)] = true
	}
	if p.r.saveRecord(s); p.r.latched.Load() {
		t.Fatalf("5000 removed replicas: %v", p.whyStopped())
	}
	p.recordMembership(testContext(t))
	awaitRecord(t, p, time.Now().Add(testTimeout))
	if got := p.r.record().Membership.Removed; len(got) != removedMax || !got[gone(most-1)] {
		t.Errorf("the record has %d of %d removed replicas", len(got), most)
	}
	n.close()
	n.open()
	p = n.start(testSpec(t, 1), false)
	writable(t, p)
	if m := membership(t, p); len(m.removed) != removedMax || !m.removed[gone(most-1)] {
		t.Errorf("after a restart %d are known as removed", len(m.removed))
	}
	for _, i := range []int{0, most / 2, most - 1} {
		id := gone(i)
		if err := retryChange(t, func(ctx context.Context) error { return p.AddLearner(ctx, id, 2) }); !errors.Is(err, ErrMembership) {
			t.Errorf("adding removed replica %d: %v", i, err)
		}
		mustChange(t, func(ctx context.Context) error { return p.Remove(ctx, id) })
	}
	mustChange(t, func(ctx context.Context) error { return p.AddLearner(ctx, gone(most), 2) })
	n.close()
}

func TestWasRemoved(t *testing.T) {
	removed := map[uint64]bool{}
	for i := range uint64(removedMax) {
		if wasRemoved(removed, 1) || i > 0 && !wasRemoved(removed, 100) {
			t.Fatalf("with %d removed ids", i)
		}
		removed[100+2*i] = true
	}
	for id, want := range map[uint64]bool{1: true, 100: true, 101: false, 102: true, 1000: false} {
		if wasRemoved(removed, id) != want {
			t.Errorf("id %d: %v", id, !want)
		}
	}
	m := pb.Membership{Removed: removed}
	removed[99], removed[1001] = true, true
	if forgetRemoved(&m); len(m.Removed) != removedMax || m.Removed[99] || m.Removed[100] || !m.Removed[1001] || len(removed) != removedMax+2 {
		t.Errorf("left are %d: %v", len(m.Removed), fmt.Sprint(m.Removed))
	}
}

// A replica that Raft has removed long ago leaves the record, and a member never does.
func TestPlanSettlesWhatIsForgotten(t *testing.T) {
	m := newGroupModel(t, nextStep, nodesNamed(5), 1, 2, 3)
	addReplica(m, 4, RoleLeaving)
	for i := range uint32(removedMax) {
		m.removed[replicaID(5, 100+i)] = true
	}
	s := m.decide()
	if s.Kind != stepRecord || len(s.Record.Replicas) != 3 {
		t.Errorf("the next step is %v", s)
	}
}
