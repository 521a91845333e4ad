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

// metadataTarget chooses the nodes whose replica of the metadata votes and those that only copy it, in order of their ids. Who votes goes on to, also
// while its node is down or drained, until the node is removed or its files are lost: a node would lose sight of the metadata if its replica
// were replaced under it. New voters are on active nodes that are alive, in racks that have few, and rather those that have copied for long; their
// number is such that the group does not become even.
func metadataTarget(nodes []nodeView, current PartitionAssignment) (voters, learners []int32) {
	type candidate struct {
		nodeView
		class       int
		incarnation uint64
	}
	var pool []candidate
	var all []int32
	racks := map[string]int{}
	active, staying := 0, 0
	for _, n := range nodes {
		if n.Mode == NodeRemoved {
			continue
		}
		all = append(all, n.ID)
		c := candidate{nodeView: n, class: 1, incarnation: 1 << 32} // without a replica that will do
		for _, r := range current.Replicas {
			switch {
			case r.Node == n.ID && r.Role == RoleVoter:
				voters = append(voters, n.ID)
				racks[n.Rack]++
				c.class = -1
			case r.Node == n.ID && r.Role == RoleLearner:
				c.class, c.incarnation = 0, r.Replica>>32
			}
		}
		if n.Mode == NodeActive {
			active++
			if c.class < 0 {
				staying++
			}
		}
		if c.class >= 0 && n.takes() {
			pool = append(pool, c)
		}
	}
	more := min(metadataVoters(active)-staying, len(pool))
	if (len(voters)+more)%2 == 0 {
		more-- // a member more that cannot be lost
	}
	for range more {
		best := slices.MinFunc(pool, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(racks[a.Rack], racks[b.Rack]),
				cmp.Compare(a.incarnation, b.incarnation), cmp.Compare(a.ID, b.ID))
		})
		racks[best.Rack]++
		voters = append(voters, best.ID)
		pool = slices.DeleteFunc(pool, func(c candidate) bool { return c.ID == best.ID })
	}
	slices.Sort(voters)
	for _, id := range all {
		if !slices.Contains(voters, id) {
			learners = append(learners, id)
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
