package replication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// The governor is the part of the controller that works only where the metadata is led: it takes the next step of every group that is not as the
// records say, until it is.

const (
	governBusy     = 100 * time.Millisecond // between rounds while a group is on its way
	governIdle     = 2 * time.Second        // between looks otherwise
	balanceEvery   = 10 * time.Second       // between looks at who leads what
	balanceMoves   = 4                      // leaderships moved at once
	governParallel = 8                      // groups worked on at once
	stepTimeout    = 15 * time.Second       // for one question or change of one group
)

func (c *Controller) wakeGovernor() {
	select {
	case c.governWake <- struct{}{}:
	default:
	}
}

// govern also reports, on every node, which of its replicas are lost.
func (c *Controller) govern() {
	timer := time.NewTimer(governBusy)
	defer timer.Stop()
	balanced, led := time.Now(), time.Now()
	for {
		changed := c.Changed()
		select {
		case <-c.ctx.Done():
			return
		case <-c.governWake:
		case <-changed:
		case <-timer.C:
		}
		c.host.addresses(c.everyNode())
		c.reportLost(c.ctx)
		c.tellEndpoints(c.ctx)
		if _, ok := c.leaderNode(); ok {
			led = time.Now()
		}
		if err := c.renewMetadata(c.ctx, led); err != nil && c.ctx.Err() == nil {
			c.host.logger.Info("this node's replica of the metadata is not replaced yet", "err", err)
		}
		next := governIdle
		if c.meta().Epoch() != 0 {
			c.recoverLossy(c.ctx)
			c.raise(c.ctx)
			if c.governRound(c.ctx) {
				next = governBusy
			}
			if time.Since(balanced) >= balanceEvery {
				balanced = time.Now()
				c.balance(c.ctx)
			}
		}
		timer.Reset(next)
		if next == governBusy { // changes that come in a row are looked at together
			select {
			case <-timer.C:
			case <-c.ctx.Done():
				return
			}
			timer.Reset(0)
		}
	}
}

// governRound takes one step of each group that needs one; busy says that some are on their way.
func (c *Controller) governRound(ctx context.Context) (busy bool) {
	forming := c.forming() // before the nodes are looked at: who is known now is among them
	nodes := c.nodeViewMap()
	c.mu.RLock()
	var work []PartitionAssignment
	for _, t := range c.mu.topics {
		for _, a := range t.Partitions {
			if a.Shard == metadataShard {
				if !forming && c.metadataUnsettledLocked(a, nodes) {
					work = append(work, a)
				}
			} else if a.unsettled() {
				work = append(work, a)
			}
		}
	}
	c.mu.RUnlock()
	slices.SortFunc(work, func(a, b PartitionAssignment) int { return int(int64(a.Shard) - int64(b.Shard)) })
	var wg sync.WaitGroup
	slots := make(chan struct{}, governParallel)
	for _, a := range work {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := c.advance(ctx, a, nodes); err != nil && ctx.Err() == nil {
				c.host.logger.Info("a group is not as it shall be yet", "shard", a.Shard, "err", err)
			}
		})
	}
	wg.Wait()
	return len(work) > 0
}

func (a *PartitionAssignment) unsettled() bool {
	return a.Target != nil || slices.ContainsFunc(a.Replicas, func(r ReplicaAssignment) bool { return r.Role != RoleVoter })
}

// metadataUnsettledLocked says whether the metadata's group has voters or learners elsewhere than it should.
func (c *Controller) metadataUnsettledLocked(a PartitionAssignment, nodes map[int32]nodeView) bool {
	voters, learners := metadataTarget(sortedNodes(nodes), a)
	var v, l []int32
	for _, r := range a.Replicas {
		switch r.Role {
		case RoleVoter:
			v = append(v, r.Node)
		case RoleLearner:
			l = append(l, r.Node)
		default:
			return true
		}
	}
	slices.Sort(v)
	slices.Sort(l)
	return !slices.Equal(v, voters) || !slices.Equal(l, learners) || c.learnsUnknownLocked(a)
}

// forming says whether some of those that form the cluster have not registered: their replicas are initial members on nodes of which there is no record,
// not even that they were removed. Until they are known, who shall vote cannot be decided.
func (c *Controller) forming() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.ContainsFunc(c.mu.topics[MetadataTopic].Partitions[0].Replicas, func(r ReplicaAssignment) bool {
		_, known := c.mu.nodes[r.Node]
		return !known
	})
}

// learnsUnknownLocked says whether Raft may not know yet of a learner of the metadata that the record has.
func (c *Controller) learnsUnknownLocked(a PartitionAssignment) bool {
	if c.meta().r == nil {
		return false
	}
	c.governed.Lock()
	defer c.governed.Unlock()
	for _, r := range a.Replicas {
		if r.Role == RoleLearner && !c.governed.learners[r.Replica] {
			return true
		}
	}
	return false
}

// advance takes the next step of one group.
func (c *Controller) advance(ctx context.Context, a PartitionAssignment, nodes map[int32]nodeView) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	g, leader, err := c.groupOf(ctx, a)
	if err != nil {
		return err
	}
	var s step
	if a.Shard == metadataShard {
		c.noteLearners(g)
		s = nextMetadataStep(g, nodes)
	} else {
		s = nextStep(g, nodes)
	}
	switch s.Kind {
	case stepNone:
		return nil
	case stepRecord:
		return c.record(ctx, a, s.Record)
	}
	c.host.logger.Info("changing a group", "shard", a.Shard, "step", s.Kind.String(), "replica", fmt.Sprintf("%x", s.Replica))
	err = c.stepOn(ctx, leader, stepRequest{Shard: a.Shard, Kind: s.Kind, Replica: s.Replica, Node: nodeOf(s.Replica)})
	if err == nil {
		c.wakeGovernor()
	}
	return err
}

func (c *Controller) noteLearners(g groupView) {
	c.governed.Lock()
	defer c.governed.Unlock()
	if g.Known {
		c.governed.learners = g.Learners
	}
}

// record writes a partition's new assignment, unless it changed since the step was decided.
func (c *Controller) record(ctx context.Context, old, a PartitionAssignment) error {
	err := c.decide(ctx, func(ctx context.Context) error {
		c.mu.RLock()
		t, now, ok := c.mu.partition(a.Shard)
		same := ok && now.equal(old)
		c.mu.RUnlock()
		if !same {
			return nil // looked at again
		}
		return c.write(ctx, topicRecord(t.with(a), false))
	})
	c.wakeGovernor()
	return err
}

func (a *PartitionAssignment) equal(b PartitionAssignment) bool {
	return a.Shard == b.Shard && a.NextIncarnation == b.NextIncarnation && a.Wanted == b.Wanted &&
		slices.Equal(a.Replicas, b.Replicas) && slices.Equal(a.Target, b.Target)
}

// groupAnswer is what the leader of a group says of it.
type groupAnswer struct {
	Leads    bool     `json:"leads"`
	Leader   uint64   `json:"leader,omitempty"` // the answering replica, or who it thinks leads
	Voters   []uint64 `json:"voters,omitempty"`
	Learners []uint64 `json:"learners,omitempty"`
	Removed  []uint64 `json:"removed,omitempty"`
	CaughtUp []uint64 `json:"caught_up,omitempty"`
}

type groupRequest struct {
	Shard uint64 `json:"shard"`
}

func (c *Controller) answerGroup(ctx context.Context, _ int32, payload []byte) ([]byte, error) {
	var q groupRequest
	if err := json.Unmarshal(payload, &q); err != nil {
		return nil, fmt.Errorf("replication: request: %w", err)
	}
	a, err := c.describe(ctx, q.Shard)
	if err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// describe tells of a group from this node's replica of it.
func (c *Controller) describe(ctx context.Context, shard uint64) (a groupAnswer, err error) {
	p := c.local(shard)
	if p == nil {
		return a, nil
	}
	a.Leader, _, _ = c.host.guard.leader(shard)
	if p.Epoch() == 0 || a.Leader != p.spec.Replica {
		return a, nil
	}
	voters, learners, removed, err := p.Membership(ctx)
	if err != nil {
		return a, err
	}
	a.Leads = true
	for r := range voters {
		a.Voters = append(a.Voters, r)
		if p.caughtUp(r) {
			a.CaughtUp = append(a.CaughtUp, r)
		}
	}
	for r := range learners {
		a.Learners = append(a.Learners, r)
		if p.caughtUp(r) {
			a.CaughtUp = append(a.CaughtUp, r)
		}
	}
	for r := range removed {
		a.Removed = append(a.Removed, r)
	}
	return a, nil
}

var errNoLeader = errors.New("replication: no replica of the group says that it leads")

// groupOf asks the leader of a group about it, wherever it is.
func (c *Controller) groupOf(ctx context.Context, a PartitionAssignment) (g groupView, leader int32, err error) {
	g.Assignment = a
	for _, node := range c.candidates(a) {
		var ans groupAnswer
		if node == c.host.cfg.Node.ID {
			ans, err = c.describe(ctx, a.Shard)
		} else {
			err = c.host.callJSON(ctx, node, requestGroup, groupRequest{a.Shard}, &ans)
		}
		if err != nil || !ans.Leads {
			continue
		}
		g.Known, g.Leader = true, ans.Leader
		g.Voters, g.Learners, g.Removed, g.CaughtUp = setOf(ans.Voters), setOf(ans.Learners), setOf(ans.Removed), setOf(ans.CaughtUp)
		return g, node, nil
	}
	return g, 0, fmt.Errorf("%w: %w", errNoLeader, cmpError(err, ErrNotLeader))
}

// candidates are the nodes to ask about a group: who leads as far as known here first, then all that can be reached.
func (c *Controller) candidates(a PartitionAssignment) (out []int32) {
	if replica, _, ok := c.host.guard.leader(a.Shard); ok && replica != 0 {
		out = append(out, nodeOf(replica))
	}
	for _, r := range a.Replicas {
		if r.Role != RoleLost && !slices.Contains(out, r.Node) && c.host.reachable(r.Node) {
			out = append(out, r.Node)
		}
	}
	return out
}

func setOf(ids []uint64) map[uint64]bool {
	m := make(map[uint64]bool, len(ids))
	for _, id := range ids {
		m[id] = true
	}
	return m
}

type stepRequest struct {
	Shard   uint64   `json:"shard"`
	Kind    stepKind `json:"kind"`
	Replica uint64   `json:"replica"`
	Node    int32    `json:"node"`
}

func (c *Controller) answerStep(ctx context.Context, _ int32, payload []byte) ([]byte, error) {
	var q stepRequest
	if err := json.Unmarshal(payload, &q); err != nil {
		return nil, fmt.Errorf("replication: request: %w", err)
	}
	return carriedOut(c.step(ctx, q))
}

// step changes the membership of a group that this node leads.
func (c *Controller) step(ctx context.Context, q stepRequest) error {
	p := c.local(q.Shard)
	if p == nil {
		return fmt.Errorf("%w: shard %d has no replica here", ErrNotLeader, q.Shard)
	}
	switch q.Kind {
	case stepAddLearner:
		return p.AddLearner(ctx, q.Replica, q.Node)
	case stepPromote:
		return p.Promote(ctx, q.Replica, q.Node)
	case stepRemove:
		return p.Remove(ctx, q.Replica)
	case stepTransferLeader:
		return p.transferLeadership(ctx, q.Replica)
	}
	return fmt.Errorf("%w: step %d of shard %d: use a newer program", ErrInvalidConfig, q.Kind, q.Shard)
}

func (c *Controller) stepOn(ctx context.Context, node int32, q stepRequest) error {
	if node == c.host.cfg.Node.ID {
		return c.step(ctx, q)
	}
	return c.order(ctx, node, requestStep, q)
}

// balance gives leaderships back to the preferred replicas, a few at a time.
func (c *Controller) balance(ctx context.Context) {
	nodes := c.nodeViewMap()
	c.mu.RLock()
	all := c.mu.assignments()
	c.mu.RUnlock()
	var groups []groupView
	for _, a := range all {
		if len(groups) >= balanceMoves || len(a.Replicas) < 2 || a.unsettled() || !c.misled(a, nodes) {
			continue
		}
		step, cancel := context.WithTimeout(ctx, stepTimeout)
		g, _, err := c.groupOf(step, a)
		cancel()
		if err == nil {
			groups = append(groups, g)
		}
	}
	for _, s := range leaderMoves(groups, nodes, balanceMoves) {
		step, cancel := context.WithTimeout(ctx, stepTimeout)
		i := slices.IndexFunc(groups, func(g groupView) bool { return g.Assignment.Shard == s.Shard })
		err := c.stepOn(step, nodeOf(groups[i].Leader), stepRequest{Shard: s.Shard, Kind: s.Kind, Replica: s.Replica, Node: s.Node})
		cancel()
		if err != nil && ctx.Err() == nil {
			c.host.logger.Info("a leadership did not move", "shard", s.Shard, "err", err)
		}
	}
}

// misled says whether a group may be led by another than its preferred replica, as far as this node knows.
func (c *Controller) misled(a PartitionAssignment, nodes map[int32]nodeView) bool {
	leader, _, ok := c.host.guard.leader(a.Shard)
	if !ok {
		return true // no replica here: its leader has to be asked
	}
	for _, r := range a.Replicas {
		if n := nodes[r.Node]; n.Alive && n.Mode == NodeActive {
			return leader != r.Replica
		}
	}
	return false
}

// reportLost tells the controller of this node's replicas that damage or a failed disk took out, so that they are replaced.
func (c *Controller) reportLost(ctx context.Context) {
	c.mu.RLock()
	var lost []lostRequest
	for _, p := range c.mu.partitions {
		why, stays := p.lost(), false
		if why == nil {
			why, stays = p.Damage(), true
		}
		if why != nil {
			_, a, ok := c.mu.partition(p.spec.Shard)
			if ok && slices.ContainsFunc(a.Replicas, func(r ReplicaAssignment) bool {
				return r.Replica == p.spec.Replica && r.Role != RoleLost && r.Role != RoleLeaving
			}) && len(a.Replicas) > 1 {
				lost = append(lost, lostRequest{Shard: p.spec.Shard, Replica: p.spec.Replica, Why: why.Error(), Stays: stays, Lossy: errors.Is(why, errLossyTail)})
			}
		}
	}
	c.mu.RUnlock()
	for _, q := range lost {
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		// Not until it is seen here: this node's replica of the metadata may be lost in the meantime, and is replaced by who waits here.
		_, _, err := submit(ctx, c, "report-lost", q, (*Controller).replicaLost)
		cancel()
		if err != nil {
			c.host.logger.Info("a lost replica could not be reported yet", "shard", q.Shard, "err", err)
			return
		}
	}
}

// lost is why a replica cannot come back by itself, nil when it runs or may.
func (p *Partition) lost() error {
	state, cause := p.State()
	if state == StateQuarantined || (state == StateFailed && !errors.Is(cause, ErrDiskFull)) {
		return cause
	}
	return nil
}
