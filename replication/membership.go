package replication

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/lni/dragonboat/v4"
	pb "github.com/lni/dragonboat/v4/raftpb"
)

// membershipTimeout bounds a membership change and a look at the membership, besides the caller's context.
const membershipTimeout = 10 * time.Second

// AddLearner makes a replica a member that copies and does not vote. The call goes to the leader's node; that it is so already is no error. At most
// one change of a partition runs at a time. Errors: ErrNotLeader and ErrBusy, nothing was changed, retriable; ErrAmbiguous, the change may have
// been made, retriable; ErrMembership, the group does not take the change now or ever; ErrClosed.
func (p *Partition) AddLearner(ctx context.Context, replica uint64, node int32) error {
	return p.changeMembership(ctx, pb.AddNonVoting, replica, node)
}

// Promote gives a learner its vote. It should have caught up: until it has, it counts for the quorum and helps nobody. Otherwise as AddLearner.
func (p *Partition) Promote(ctx context.Context, replica uint64, node int32) error {
	return p.changeMembership(ctx, pb.AddNode, replica, node)
}

// Remove takes a replica out of the group, for good: its id never comes back. A leader that removes itself steps down. Otherwise as AddLearner.
func (p *Partition) Remove(ctx context.Context, replica uint64) error {
	return p.changeMembership(ctx, pb.RemoveNode, replica, nodeOf(replica))
}

// Membership returns the members of the group, replica id to node, and the newest ids that were removed, as the leader has them when the call is made. It
// works on the node of every voter and learner. Errors: ErrNotLeader, no leader answered, retriable; ErrClosed.
func (p *Partition) Membership(ctx context.Context) (voters, learners map[uint64]int32, removed map[uint64]bool, err error) {
	ctx, cancel := p.bound(ctx, membershipTimeout)
	defer cancel()
	m, err := p.membership(ctx)
	return m.voters, m.learners, m.removed, err
}

// members is a group's membership.
type members struct {
	voters, learners map[uint64]int32
	removed          map[uint64]bool
}

// bound is ctx, ended by the partition's end and by a timeout as well.
func (p *Partition) bound(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	stop := context.AfterFunc(p.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

func (p *Partition) membership(ctx context.Context) (members, error) {
	if p.r == nil || p.stopped() {
		return members{}, p.whyStopped()
	}
	m, err := p.host.guard.membership(ctx, p.spec.Shard)
	if err != nil {
		return members{}, p.membershipError(ErrNotLeader, err)
	}
	out := members{voters: map[uint64]int32{}, learners: map[uint64]int32{}, removed: map[uint64]bool{}}
	for id := range m.Nodes {
		out.voters[id] = nodeOf(id)
	}
	for id := range m.NonVotings {
		out.learners[id] = nodeOf(id)
	}
	for id := range m.Removed {
		out.removed[id] = true
	}
	out.removed = newestRemoved(out.removed)
	return out, nil
}

// membershipError makes an error to branch on of dragonboat's.
func (p *Partition) membershipError(kind, err error) error {
	switch {
	case p.ctx.Err() != nil, errors.Is(err, ErrClosed):
		kind = ErrClosed
	case errors.Is(err, dragonboat.ErrSystemBusy):
		kind = ErrBusy
	}
	return fmt.Errorf("%w: membership of %s: %w", kind, p.name(), err)
}

func (p *Partition) changeMembership(ctx context.Context, kind pb.ConfigChangeType, replica uint64, node int32) error {
	if replica == 0 || nodeOf(replica) != node {
		return fmt.Errorf("%w: replica %x is not of node %d", ErrMembership, replica, node)
	}
	if !p.changing.TryLock() {
		return fmt.Errorf("%w: another change of the membership of %s runs", ErrBusy, p.name())
	}
	defer p.changing.Unlock()
	ctx, cancel := p.bound(ctx, membershipTimeout)
	defer cancel()
	if leader, _, ok := p.host.guard.leader(p.spec.Shard); !ok || leader != p.spec.Replica {
		return fmt.Errorf("%w: %s", ErrNotLeader, p.name())
	}
	m, err := p.membership(ctx)
	if err != nil {
		return err
	}
	if done, err := m.allows(kind, replica, node); done || err != nil {
		return err
	}
	res, err := p.host.guard.change(ctx, kind, p.spec.Shard, replica, nodeName(node), membershipTimeout)
	switch {
	case errors.Is(err, errNotProposed):
		return p.membershipError(ErrNotLeader, err)
	case err != nil:
		return p.membershipError(ErrAmbiguous, err)
	case res.Completed():
		return nil
	case res.Dropped():
		return fmt.Errorf("%w: %s took no change of its membership now", ErrBusy, p.name())
	case !res.Rejected():
		return fmt.Errorf("%w: changing the membership of %s", ErrAmbiguous, p.name())
	}
	// Somebody else's change came first.
	if m, err = p.membership(ctx); err != nil {
		return err
	}
	done, err := m.allows(kind, replica, node)
	if err == nil && !done {
		err = fmt.Errorf("%w: %s refused replica %x", ErrMembership, p.name(), replica)
	}
	return err
}

// allows says whether a change is made already, and otherwise why it cannot be.
func (m *members) allows(kind pb.ConfigChangeType, replica uint64, node int32) (done bool, err error) {
	_, votes := m.voters[replica]
	_, learns := m.learners[replica]
	removed := !votes && !learns && wasRemoved(m.removed, replica)
	switch {
	case kind == pb.RemoveNode:
		if votes && len(m.voters) == 1 {
			return false, fmt.Errorf("%w: replica %x is the only voter", ErrMembership, replica)
		}
		return removed, nil // also one that never was a member: then it never becomes one
	case removed:
		return false, fmt.Errorf("%w: replica %x was removed, and ids are used once", ErrMembership, replica)
	case kind == pb.AddNode && votes, kind == pb.AddNonVoting && learns:
		return true, nil
	case kind == pb.AddNonVoting && votes:
		return false, fmt.Errorf("%w: replica %x votes already", ErrMembership, replica)
	case kind == pb.AddNode && !learns:
		return false, fmt.Errorf("%w: replica %x is no learner", ErrMembership, replica)
	case kind == pb.AddNode:
		return false, nil
	}
	for _, list := range []map[uint64]int32{m.voters, m.learners} {
		for other := range maps.Keys(list) {
			if nodeOf(other) == node {
				return false, fmt.Errorf("%w: node %d has replica %x of the partition", ErrMembership, node, other)
			}
		}
	}
	return false, nil
}

// recordMemberships asks dragonboat for snapshot records that cover membership changes: until there is one, a restart has to begin before the change.
func (h *Host) recordMemberships() {
	for _, p := range h.Partitions() {
		if h.ctx.Err() != nil {
			return
		}
		p.recordMembership(h.ctx)
	}
}

func (p *Partition) recordMembership(ctx context.Context) {
	if !p.life.TryRLock() {
		return // being started or stopped
	}
	defer p.life.RUnlock()
	if p.r == nil || p.stopped() || p.r.latched.Load() || !p.r.recordDue() {
		return
	}
	ctx, cancel := p.bound(ctx, snapshotTimeout)
	defer cancel()
	if err := p.host.guard.snapshot(ctx, p.spec.Shard, 0, snapshotTimeout); err != nil && !errors.Is(err, errRecorded) {
		p.host.logger.Debug("no record of a membership change yet", "partition", p.name(), "err", err)
	}
}

// recordDue says whether a membership change was committed that no record covers.
func (r *replica) recordDue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.lastConfig > r.recordLocked().Index && r.mu.lastConfig <= r.mu.state.Commit
}
