package replication

import (
	"cmp"
	"slices"
)

// Every active node has a replica of the metadata; this many of them vote.
const (
	fewMetadataVoters  = 3 // with 3 or 4 nodes; with fewer, one
	mostMetadataVoters = 5 // with 5 nodes or more
)

// metadataVoters is how many of n nodes vote: never an even number, which costs a member more than it can lose.
func metadataVoters(n int) int {
	switch {
	case n < fewMetadataVoters:
		return min(n, 1)
	case n < mostMetadataVoters:
		return fewMetadataVoters
	}
	return mostMetadataVoters
}

// metadataTarget chooses the nodes whose replica of the metadata votes and those that only copy it, in order of their ids. Voters on active
// nodes stay, also while their node is down; new ones are on nodes that are alive, in racks that have few, and rather those that have copied
// for long. A node that is drained copies until it is removed.
func metadataTarget(nodes []nodeView, current PartitionAssignment) (voters, learners []int32) {
	type candidate struct {
		nodeView
		class       int
		incarnation uint64
	}
	var pool []candidate
	var active []int32
	for _, n := range nodes {
		if n.Mode == NodeRemoved {
			continue
		}
		active = append(active, n.ID)
		if n.Mode == NodeDraining {
			continue // it follows until it is removed, since it may still hold partitions
		}
		c := candidate{nodeView: n, class: 3, incarnation: 1 << 32} // without a replica that will do
		for _, r := range current.Replicas {
			if r.Node == n.ID && r.Role == RoleVoter {
				c.class = 1
			} else if r.Node == n.ID && r.Role == RoleLearner {
				c.class, c.incarnation = 2, r.Replica>>32
			}
		}
		if c.class == 1 && n.Alive {
			c.class = 0
		}
		if c.class < 2 || n.Alive {
			pool = append(pool, c)
		}
	}
	racks := map[string]int{}
	for range metadataVoters(len(pool)) {
		best := slices.MinFunc(pool, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(racks[a.Rack], racks[b.Rack]),
				cmp.Compare(a.incarnation, b.incarnation), cmp.Compare(a.ID, b.ID))
		})
		voters = append(voters, best.ID)
		racks[best.Rack]++
		pool = slices.DeleteFunc(pool, func(c candidate) bool { return c.ID == best.ID })
	}
	slices.Sort(active)
	slices.Sort(voters)
	for _, n := range active {
		if !slices.Contains(voters, n) {
			learners = append(learners, n)
		}
	}
	return voters, learners
}

// nextMetadataStep decides what is done next about the metadata's group, as nextStep does, with metadataTarget for target. The record's own
// Target is not used. A voter that is to vote no more is removed, and its node comes back as a learner under a new id.
func nextMetadataStep(g groupView, nodes map[int32]nodeView) step {
	p := newPlanner(g, nodes)
	if p == nil {
		return step{}
	}
	p.settle()
	voters, learners := metadataTarget(sortedNodes(nodes), p.record)
	if len(voters) == 0 {
		return step{}
	}
	votes := func(r ReplicaAssignment) bool { return slices.Contains(voters, r.Node) }
	all := p.votesOnAll(voters)
	p.leave(func(r ReplicaAssignment) bool {
		n := nodes[r.Node]
		switch {
		case votes(r):
			return false
		case r.Role == RoleLearner:
			return !slices.Contains(learners, r.Node)
		}
		return all || !n.Alive && n.Mode != NodeActive // what is down and not to be used is of no use until the others are there
	})
	for _, n := range append(voters, learners...) {
		p.learnOn(n)
	}
	if s, ok := p.recordStep(); ok {
		return s
	}
	// An even number of voters shall not last: from an odd one, a promotion waits until what follows it can be done as well.
	missing, ready := 0, 0
	for _, n := range voters {
		if !p.votesOn(n) {
			missing++
		}
	}
	for _, r := range p.record.Replicas {
		if r.Role == RoleLearner && votes(r) && p.Learners[r.Replica] && p.healthy(r.Replica) {
			ready++
		}
	}
	passing := len(idsOf(p.Voters))%2 == 0 || missing == 1 || ready >= 2
	return p.change(
		func(r ReplicaAssignment) bool { return votes(r) && passing },
		func(r ReplicaAssignment) bool { return votes(r) || all },
	)
}

// sortedNodes lists nodes by id.
func sortedNodes(nodes map[int32]nodeView) []nodeView {
	out := make([]nodeView, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b nodeView) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
