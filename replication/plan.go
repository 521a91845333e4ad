package replication

import (
	"maps"
	"slices"
)

// What the controller decides, as pure functions: they are given what is known of nodes and groups and return the next step of a group, or
// where replicas shall be. They read no clock, keep no state and change none of their arguments. Equal arguments give equal answers.
//
// A step is what brings one group nearer to its record. It is either a new record or one change of Raft's own membership, never both. Whoever
// carries out steps may die before, during or after each of them, and may carry out a step that was decided some steps ago: the record
// always changes before Raft's membership does, a replica is dropped from the record only after Raft has it removed, and Raft never takes
// back an id that was removed. So a change that arrives late does nothing, or what was meant.

// nodeView is what is known of one node.
type nodeView struct {
	ID    int32
	Rack  string // nodes without a rack are in one rack together
	Mode  NodeMode
	Alive bool
}

// takes tells whether the node can be given a new replica.
func (n nodeView) takes() bool { return n.Alive && n.Mode == NodeActive }

// groupView is what is known of one partition's group: the record, and Raft's own membership as its leader tells it.
type groupView struct {
	Assignment PartitionAssignment
	Known      bool // a leader answered; without it the rest is empty
	Leader     uint64
	Voters     map[uint64]bool
	Learners   map[uint64]bool
	Removed    map[uint64]bool // the newest ids, see removedMax
	CaughtUp   map[uint64]bool // voters and learners that have nearly all of the log; the leader need not be in it
}

// stepKind is what is to be done. The numbers are frozen: they are on the wire.
type stepKind uint8

const (
	stepNone           stepKind = iota
	stepRecord                  // write Record
	stepAddLearner              // make Replica a member of Raft's that does not vote
	stepPromote                 // make the learner Replica a voter
	stepRemove                  // remove Replica from Raft's membership, also if it is no member: then it never becomes one
	stepTransferLeader          // have Replica lead
)

// String names the kind.
func (k stepKind) String() string {
	switch k {
	case stepNone:
		return "none"
	case stepRecord:
		return "record"
	case stepAddLearner:
		return "add learner"
	case stepPromote:
		return "promote"
	case stepRemove:
		return "remove"
	case stepTransferLeader:
		return "transfer leadership"
	}
	return "unknown"
}

// step is one thing to be done to one group. The zero value does nothing.
type step struct {
	Kind    stepKind
	Shard   uint64
	Replica uint64
	Node    int32               // that of Replica
	Record  PartitionAssignment // of a stepRecord
}

// quorum is how many of n voters decide.
func quorum(n int) int { return n/2 + 1 }

// planner decides about one group. Its record is the group's, brought forward by what is known.
type planner struct {
	groupView
	nodes  map[int32]nodeView
	record PartitionAssignment
}

// newPlanner returns nil if nothing can be decided: no leader answered, no quorum is alive, or the answer is older than the record.
func newPlanner(g groupView, nodes map[int32]nodeView) *planner {
	p := &planner{groupView: g, nodes: nodes, record: g.Assignment}
	p.record.Replicas = slices.Clone(g.Assignment.Replicas)
	p.record.Target = slices.Clone(g.Assignment.Target)
	if !g.Known || p.liveVoters() < quorum(len(idsOf(g.Voters))) {
		return nil
	}
	for _, r := range g.Assignment.Replicas {
		if r.Role == RoleVoter && !g.Voters[r.Replica] && !p.removed(r.Replica) {
			return nil
		}
	}
	return p
}

// idsOf lists a set in order.
func idsOf(set map[uint64]bool) []uint64 {
	var out []uint64
	for _, id := range slices.Sorted(maps.Keys(set)) {
		if set[id] {
			out = append(out, id)
		}
	}
	return out
}

// live tells whether the replica takes part: its node is alive and its files are there.
func (p *planner) live(id uint64) bool {
	for _, r := range p.Assignment.Replicas {
		if r.Replica == id && r.Role == RoleLost {
			return false
		}
	}
	return p.nodes[nodeOf(id)].Alive
}

// healthy tells whether the replica takes part and has the log.
func (p *planner) healthy(id uint64) bool { return p.live(id) && (id == p.Leader || p.CaughtUp[id]) }

func (p *planner) liveVoters() int {
	n := 0
	for _, id := range idsOf(p.Voters) {
		if p.live(id) {
			n++
		}
	}
	return n
}

// raftKnows tells whether the replica is or was a member.
func (p *planner) raftKnows(id uint64) bool { return p.Voters[id] || p.Learners[id] || p.removed(id) }

// removed tells whether the replica was a member and is none any more.
func (p *planner) removed(id uint64) bool {
	return !p.Voters[id] && !p.Learners[id] && wasRemoved(p.Removed, id)
}

// isMemberNode tells whether a node has a member of Raft's.
func (p *planner) isMemberNode(node int32) bool {
	on := func(id uint64) bool { return nodeOf(id) == node }
	return slices.ContainsFunc(idsOf(p.Voters), on) || slices.ContainsFunc(idsOf(p.Learners), on)
}

// onNode tells whether a node has a replica, whatever its role: names of nodes cannot repeat in Raft's membership, so the old one has to be
// gone before a new one comes.
func (p *planner) onNode(node int32) bool {
	return p.isMemberNode(node) || slices.ContainsFunc(p.record.Replicas, func(r ReplicaAssignment) bool { return r.Node == node })
}

// votesOn tells whether the record has a voter on the node, which is neither lost nor leaving.
func (p *planner) votesOn(node int32) bool {
	return slices.ContainsFunc(p.record.Replicas, func(r ReplicaAssignment) bool { return r.Node == node && r.Role == RoleVoter })
}

// votesOnAll tells whether the record has a voter on each of the nodes.
func (p *planner) votesOnAll(nodes []int32) bool {
	return !slices.ContainsFunc(nodes, func(n int32) bool { return !p.votesOn(n) })
}

// learnOn records a new replica on the node if it is alive and has none.
func (p *planner) learnOn(node int32) {
	if !p.nodes[node].Alive || p.onNode(node) {
		return
	}
	next := p.nextIncarnation()
	p.record.Replicas = append(p.record.Replicas, ReplicaAssignment{Node: node, Replica: replicaID(node, next), Role: RoleLearner})
	p.record.NextIncarnation = next + 1
}

// nextIncarnation is above that of every id in sight, also when the record's counter was never set.
func (p *planner) nextIncarnation() uint32 {
	next := max(p.record.NextIncarnation, firstIncarnation+1)
	for _, r := range p.record.Replicas {
		next = max(next, uint32(r.Replica>>32)+1)
	}
	for _, set := range []map[uint64]bool{p.Voters, p.Learners, p.Removed} {
		for id := range set {
			next = max(next, uint32(id>>32)+1)
		}
	}
	return next
}

// settle brings the record to what Raft has already done, and returns the nodes whose replica was dropped though it was not leaving.
func (p *planner) settle() (lost []int32) {
	kept := p.record.Replicas[:0]
	for _, r := range p.record.Replicas {
		switch {
		case p.removed(r.Replica):
			if r.Role != RoleLeaving {
				lost = append(lost, r.Node)
			}
			continue
		case !p.Voters[r.Replica]:
		case r.Role == RoleLearner, r.Role == RoleLeaving && len(idsOf(p.Voters)) == 1:
			r.Role = RoleVoter // the only voter cannot leave: others come first
		}
		kept = append(kept, r)
	}
	p.record.Replicas = kept
	// A member that the record does not name is recorded first, so that its removal is a decision as every other.
	for _, set := range []map[uint64]bool{p.Voters, p.Learners} {
		for _, id := range idsOf(set) {
			if !slices.ContainsFunc(p.Assignment.Replicas, func(r ReplicaAssignment) bool { return r.Replica == id }) {
				p.record.Replicas = append(p.record.Replicas, ReplicaAssignment{Node: nodeOf(id), Replica: id, Role: RoleLeaving})
			}
		}
	}
	return lost
}

// leave marks the replicas that f names as leaving.
func (p *planner) leave(f func(ReplicaAssignment) bool) {
	for i, r := range p.record.Replicas {
		if (r.Role == RoleVoter || r.Role == RoleLearner) && f(r) {
			p.record.Replicas[i].Role = RoleLeaving
		}
	}
}

// recordStep writes the record if it changed. A record without replicas is never written.
func (p *planner) recordStep() (step, bool) {
	a, b := p.Assignment, p.record
	same := slices.Equal(a.Replicas, b.Replicas) && slices.Equal(a.Target, b.Target) && a.NextIncarnation == b.NextIncarnation
	if same || len(b.Replicas) == 0 {
		return step{}, false
	}
	return step{Kind: stepRecord, Shard: a.Shard, Record: b}, true
}

func (p *planner) stepFor(kind stepKind, id uint64) step {
	return step{Kind: kind, Shard: p.Assignment.Shard, Replica: id, Node: nodeOf(id)}
}
