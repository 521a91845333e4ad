package replication

import "slices"

// nextStep decides what is done next about a partition's group. It returns the zero step when the group is as its record wants it, when it
// has to wait (for a node, for a learner to catch up), and when no quorum is left: only a person can decide what is given up then.
func nextStep(g groupView, nodes map[int32]nodeView) step {
	p := newPlanner(g, nodes)
	if p == nil {
		return step{}
	}
	lost := p.settle()
	if len(lost) > 0 && len(p.record.Target) == 0 {
		p.record.Target = replicaNodes(p.Assignment) // so that the node gets a new replica
	}
	p.approach()
	if s, ok := p.recordStep(); ok {
		return s
	}
	target := p.record.Target
	return p.change(
		func(ReplicaAssignment) bool { return true },
		func(r ReplicaAssignment) bool { return slices.Contains(target, r.Node) || p.votesOnAll(target) },
	)
}

// replicaNodes lists the nodes that a partition is on, without those that it leaves.
func replicaNodes(a PartitionAssignment) []int32 {
	var out []int32
	for _, r := range a.Replicas {
		if r.Role != RoleLeaving && !slices.Contains(out, r.Node) {
			out = append(out, r.Node)
		}
	}
	return out
}

// approach brings the record nearer to its target: new replicas first; voters that are too many leave when all others are there.
func (p *planner) approach() {
	target := p.record.Target
	if len(target) == 0 {
		return
	}
	extra := func(r ReplicaAssignment) bool { return !slices.Contains(target, r.Node) }
	p.leave(func(r ReplicaAssignment) bool { return r.Role == RoleLearner && extra(r) })
	for _, n := range target {
		if p.nodes[n].takes() {
			p.learnOn(n)
		}
	}
	if !p.votesOnAll(target) {
		return
	}
	p.leave(extra)
	if slices.ContainsFunc(p.record.Replicas, func(r ReplicaAssignment) bool { return r.Role != RoleVoter }) {
		return
	}
	slices.SortStableFunc(p.record.Replicas, func(a, b ReplicaAssignment) int {
		return slices.Index(target, a.Node) - slices.Index(target, b.Node)
	})
	p.record.Target, p.record.Origin = nil, nil
}

// change decides on the next change of Raft's membership. What is lost goes first, since it counts against the quorum; then what cannot
// cost one; then what can, the leader last. A learner that may not be promoted, or a voter that may not go, waits.
func (p *planner) change(mayPromote, mayGo func(ReplicaAssignment) bool) step {
	var free, voting, leading []ReplicaAssignment
	for _, r := range p.record.Replicas {
		switch {
		case r.Role == RoleLost:
			if s := p.removal(r.Replica); s.Kind != stepNone {
				return s
			}
		case r.Role != RoleLeaving:
		case !p.Voters[r.Replica] || !p.live(r.Replica):
			free = append(free, r)
		case !mayGo(r):
		case r.Replica == p.Leader:
			leading = append(leading, r)
		default:
			voting = append(voting, r)
		}
	}
	for _, r := range free {
		if s := p.removal(r.Replica); s.Kind != stepNone {
			return s
		}
	}
	for _, r := range p.record.Replicas {
		if r.Role == RoleLearner && !p.raftKnows(r.Replica) && p.nodes[r.Node].Alive && !p.isMemberNode(r.Node) {
			return p.stepFor(stepAddLearner, r.Replica)
		}
	}
	for _, r := range p.record.Replicas {
		if r.Role == RoleLearner && p.Learners[r.Replica] && p.healthy(r.Replica) && mayPromote(r) {
			return p.stepFor(stepPromote, r.Replica)
		}
	}
	for _, r := range append(voting, leading...) {
		if s := p.removal(r.Replica); s.Kind != stepNone {
			return s
		}
	}
	return step{}
}

// removal removes a replica, or has another one lead before, or does nothing as long as the group could not do without it.
func (p *planner) removal(id uint64) step {
	if !p.Voters[id] {
		return p.stepFor(stepRemove, id)
	}
	// Without a voter that is down, those that stay are no worse off than with it. One that works goes only if a quorum of those that
	// stay has the log, so that they can go on at once.
	ready, stay := p.live, 0
	if p.live(id) {
		ready = p.healthy
	}
	for _, other := range idsOf(p.Voters) {
		if other != id && ready(other) {
			stay++
		}
	}
	if stay < quorum(len(idsOf(p.Voters))-1) {
		return step{}
	}
	if id != p.Leader {
		return p.stepFor(stepRemove, id)
	}
	if to, ok := p.successor(); ok {
		return p.stepFor(stepTransferLeader, to)
	}
	return step{}
}

// successor is the replica that shall lead: the first that votes, has the log, and is on a node that is to be used; failing that, the
// first on any other node, or one that leaves as well.
func (p *planner) successor() (uint64, bool) {
	if id, ok := p.preferred(); ok {
		return id, true
	}
	for _, role := range []Role{RoleVoter, RoleLeaving} {
		for _, r := range p.record.Replicas {
			if r.Role == role && r.Replica != p.Leader && p.canLead(r.Replica) {
				return r.Replica, true
			}
		}
	}
	return 0, false
}

// preferred is the replica that leads when all is well.
func (p *planner) preferred() (uint64, bool) {
	for _, r := range p.record.Replicas {
		if r.Role == RoleVoter && p.canLead(r.Replica) && p.nodes[r.Node].takes() {
			return r.Replica, true
		}
	}
	return 0, false
}

func (p *planner) canLead(id uint64) bool { return p.Voters[id] && p.healthy(id) }
