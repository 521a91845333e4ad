package replication

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"pgregory.net/rapid"
)

// groupModel is one group with its nodes: a record, Raft's membership with dragonboat's rules for changes, and which replicas have their
// files and the log. It carries out steps and fails the test when one does harm or nothing.
type groupModel struct {
	t        failer
	next     func(groupView, map[int32]nodeView) step
	nodes    map[int32]nodeView
	rec      PartitionAssignment
	voters   map[uint64]bool
	learners map[uint64]bool
	removed  map[uint64]bool
	caughtUp map[uint64]bool
	leader   uint64
	used     map[uint64]bool // replica ids that were recorded
	late     []step          // sent, and not carried out yet
	done     map[stepKind]int
	everyone bool // draining nodes have a replica too
}

// hosts says whether a node can be given a replica.
func (m *groupModel) hosts(node int32) bool {
	n := m.nodes[node]
	return n.takes() || (m.everyone && n.Alive)
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func newGroupModel(t failer, next func(groupView, map[int32]nodeView) step, nodes []nodeView, on ...int32) *groupModel {
	m := &groupModel{
		t: t, next: next, nodes: map[int32]nodeView{}, rec: PartitionAssignment{Shard: 7, NextIncarnation: firstIncarnation + 1},
		voters: map[uint64]bool{}, learners: map[uint64]bool{}, removed: map[uint64]bool{}, caughtUp: map[uint64]bool{},
		used: map[uint64]bool{}, done: map[stepKind]int{},
	}
	for _, n := range nodes {
		m.nodes[n.ID] = n
	}
	for _, n := range on {
		id := replicaID(n, firstIncarnation)
		m.rec.Replicas = append(m.rec.Replicas, ReplicaAssignment{Node: n, Replica: id})
		m.voters[id], m.caughtUp[id], m.used[id] = true, true, true
	}
	return m
}

func (m *groupModel) live(id uint64) bool {
	for _, r := range m.rec.Replicas {
		if r.Replica == id && r.Role == RoleLost {
			return false
		}
	}
	return m.nodes[nodeOf(id)].Alive
}

func (m *groupModel) liveVoters() (ids []uint64) {
	for _, id := range idsOf(m.voters) {
		if m.live(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (m *groupModel) hasQuorum() bool { return len(m.liveVoters()) >= quorum(len(m.voters)) }

// view is what the controller sees. A group with a quorum elects a leader that has the log, if one has.
func (m *groupModel) view() groupView {
	g := groupView{Assignment: m.rec}
	if !m.hasQuorum() {
		return g
	}
	if !m.voters[m.leader] || !m.live(m.leader) {
		live := m.liveVoters()
		m.leader = live[0]
		for _, id := range live {
			if m.caughtUp[id] {
				m.leader = id
			}
		}
	}
	m.caughtUp[m.leader] = true
	g.Known, g.Leader = true, m.leader
	g.Voters, g.Learners = maps.Clone(m.voters), maps.Clone(m.learners)
	g.Removed, g.CaughtUp = maps.Clone(m.removed), maps.Clone(m.caughtUp)
	return g
}

func (m *groupModel) decide() step {
	g := m.view()
	before := fmt.Sprintf("%+v", g)
	s := m.next(g, m.nodes)
	if after := fmt.Sprintf("%+v", g); after != before {
		m.t.Fatalf("the decision changed its argument:\n%s\n%s", before, after)
	}
	if again := m.next(g, m.nodes); !reflect.DeepEqual(s, again) {
		m.t.Fatalf("two decisions from the same view")
	}
	return s
}

// execute carries out a step that was decided just now: it must do something and leave the group with a quorum.
func (m *groupModel) execute(s step) {
	m.t.Helper()
	m.done[s.Kind]++
	if s.Kind == stepRecord {
		m.write(s.Record)
		return
	}
	if !m.hasQuorum() {
		m.t.Fatalf("%v %x without a quorum: %s", s.Kind, s.Replica, m)
	}
	if s.Kind == stepPromote && !(m.caughtUp[s.Replica] && m.live(s.Replica)) {
		m.t.Fatalf("promotes %x, which is not caught up or not alive: %s", s.Replica, m)
	}
	if s.Kind == stepTransferLeader && s.Replica == m.leader {
		m.t.Fatalf("transfers to the leader: %s", m)
	}
	if s.Kind == stepRemove && s.Replica == m.leader {
		m.t.Fatalf("removes the leader: %s", m)
	}
	before := m.String()
	if !m.change(s) {
		m.t.Fatalf("%v %x does nothing: %s", s.Kind, s.Replica, m)
	}
	if !m.hasQuorum() {
		m.t.Fatalf("%v %x costs the quorum: before %s, after %s", s.Kind, s.Replica, before, m)
	}
}

// write checks that a record says nothing that must not be said, and takes it.
func (m *groupModel) write(a PartitionAssignment) {
	m.t.Helper()
	nodes := map[int32]bool{}
	for _, r := range a.Replicas {
		if nodes[r.Node] || nodeOf(r.Replica) != r.Node {
			m.t.Fatalf("two replicas on a node, or one on the wrong one: %+v", a)
		}
		nodes[r.Node] = true
		i := slices.IndexFunc(m.rec.Replicas, func(old ReplicaAssignment) bool { return old.Replica == r.Replica })
		if i < 0 && r.Role == RoleLeaving && (m.voters[r.Replica] || m.learners[r.Replica]) {
			continue // Raft has it though no record named it
		}
		if i < 0 {
			if m.used[r.Replica] || r.Role != RoleLearner || a.NextIncarnation <= uint32(r.Replica>>32) || !m.hosts(r.Node) {
				m.t.Fatalf("a new replica cannot be %+v: %s", r, m)
			}
			m.used[r.Replica] = true
			continue
		}
		old := m.rec.Replicas[i].Role
		switch {
		case old == r.Role, old == RoleVoter && r.Role == RoleLeaving, old == RoleLearner && r.Role == RoleLeaving:
		case old == RoleLearner && r.Role == RoleVoter && m.voters[r.Replica]:
		case old == RoleLeaving && r.Role == RoleVoter && m.voters[r.Replica] && len(m.voters) == 1:
		default:
			m.t.Fatalf("from %v to %v: %+v", old, r.Role, r)
		}
	}
	for _, old := range m.rec.Replicas {
		kept := slices.ContainsFunc(a.Replicas, func(r ReplicaAssignment) bool { return r.Replica == old.Replica })
		if !kept && !m.removed[old.Replica] {
			m.t.Fatalf("drops %+v, which Raft has not removed: %s", old, m)
		}
	}
	if a.NextIncarnation < m.rec.NextIncarnation || a.Shard != m.rec.Shard {
		m.t.Fatalf("the record went back: %+v", a)
	}
	m.rec = a
}

// change is dragonboat: it tells whether it did anything.
func (m *groupModel) change(s step) bool {
	id := s.Replica
	switch s.Kind {
	case stepAddLearner:
		if m.removed[id] || m.voters[id] || m.learners[id] {
			return false
		}
		for _, other := range append(idsOf(m.voters), idsOf(m.learners)...) {
			if nodeOf(other) == s.Node {
				return false
			}
		}
		m.learners[id] = true
		return true
	case stepPromote:
		if m.removed[id] || m.voters[id] {
			return false
		}
		if !m.learners[id] {
			m.t.Fatalf("makes a voter of %x that never was a learner", id)
		}
		delete(m.learners, id)
		m.voters[id] = true
		return true
	case stepRemove:
		if m.removed[id] || m.voters[id] && len(m.voters) == 1 {
			return false
		}
		delete(m.voters, id)
		delete(m.learners, id)
		delete(m.caughtUp, id)
		m.removed[id] = true
		return true
	case stepTransferLeader:
		if !m.voters[id] || !m.live(id) || !m.caughtUp[id] {
			return false
		}
		m.leader = id
		return true
	}
	return false
}

func (m *groupModel) catchUp() bool {
	any := false
	for _, id := range append(idsOf(m.voters), idsOf(m.learners)...) {
		if m.live(id) && !m.caughtUp[id] {
			m.caughtUp[id] = true
			any = true
		}
	}
	return any
}

// run carries out steps until there are none and all have caught up.
func (m *groupModel) run() {
	m.t.Helper()
	for range 40 * (1 + len(m.nodes)) {
		s := m.decide()
		if s.Kind == stepNone {
			if !m.catchUp() {
				return
			}
			continue
		}
		m.execute(s)
	}
	m.t.Fatalf("no end of steps; the next is %+v: %s", m.decide(), m)
}

// lose marks a node's replica as lost, unless so many of the voters would be that no quorum is left for good.
func (m *groupModel) lose(node int32) bool {
	for i, r := range m.rec.Replicas {
		if r.Node != node || r.Role == RoleLost {
			continue
		}
		left := 0
		for _, other := range m.rec.Replicas {
			if m.voters[other.Replica] && other.Role != RoleLost && other.Node != node {
				left++
			}
		}
		if m.voters[r.Replica] && left < quorum(len(m.voters)) {
			return false
		}
		m.rec.Replicas = slices.Clone(m.rec.Replicas)
		m.rec.Replicas[i].Role = RoleLost
		delete(m.caughtUp, r.Replica)
		return true
	}
	return false
}

func (m *groupModel) setNode(id int32, f func(*nodeView)) {
	n := m.nodes[id]
	f(&n)
	m.nodes[id] = n
}

// String is short enough to be read in a failure.
func (m *groupModel) String() string {
	out := fmt.Sprintf("target %v next %d leader %x", m.rec.Target, m.rec.NextIncarnation, m.leader)
	for _, r := range m.rec.Replicas {
		out += fmt.Sprintf("; %x %v", r.Replica, r.Role)
	}
	out += fmt.Sprintf("; raft voters %x learners %x removed %x caught up %x; nodes", idsOf(m.voters), idsOf(m.learners), idsOf(m.removed), idsOf(m.caughtUp))
	for _, n := range sortedNodes(m.nodes) {
		out += fmt.Sprintf(" %d", n.ID)
		if !n.Alive {
			out += " down"
		}
		if n.Mode != NodeActive {
			out += " draining"
		}
	}
	return out
}

// faults are the actions that both kinds of group suffer.
func (m *groupModel) faults() map[string]func(*rapid.T) {
	node := func(t *rapid.T) int32 { return rapid.SampledFrom(sortedNodes(m.nodes)).Draw(t, "node").ID }
	// What is under way is carried out or dropped before the world changes: a change that Raft has accepted cannot be taken back.
	flush := func(t *rapid.T) {
		for _, s := range m.late {
			if rapid.Bool().Draw(t, "carried out") && m.hasQuorum() {
				m.change(s)
			}
		}
		m.late = nil
	}
	return map[string]func(*rapid.T){
		"step": func(t *rapid.T) {
			s := m.decide()
			if s.Kind == stepNone {
				t.Skip()
			}
			switch rapid.SampledFrom([]string{"done", "done", "done", "not sent", "late"}).Draw(t, "fate") {
			case "done":
				m.execute(s)
			case "late":
				if s.Kind != stepRecord { // records of a controller that no longer leads are refused
					m.late = append(m.late, s)
				}
			}
		},
		"late step": func(t *rapid.T) {
			if len(m.late) == 0 || !m.hasQuorum() {
				t.Skip()
			}
			i := rapid.IntRange(0, len(m.late)-1).Draw(t, "which")
			m.change(m.late[i])
			m.late = slices.Delete(m.late, i, i+1)
		},
		"catch up": func(t *rapid.T) {
			ids := append(idsOf(m.voters), idsOf(m.learners)...)
			if id := rapid.SampledFrom(ids).Draw(t, "replica"); m.live(id) {
				m.caughtUp[id] = true
			}
		},
		"node down": func(t *rapid.T) {
			flush(t)
			n := node(t)
			m.setNode(n, func(v *nodeView) { v.Alive = false })
		},
		"node up": func(t *rapid.T) {
			n := node(t)
			for id := range m.caughtUp {
				if nodeOf(id) == n && !m.nodes[n].Alive {
					delete(m.caughtUp, id)
				}
			}
			m.setNode(n, func(v *nodeView) { v.Alive = true })
		},
		"disk lost": func(t *rapid.T) {
			flush(t)
			if !m.lose(node(t)) {
				t.Skip()
			}
		},
		"drain": func(t *rapid.T) {
			flush(t)
			n := node(t)
			m.setNode(n, func(v *nodeView) { v.Mode = NodeDraining })
		},
		"end drain": func(t *rapid.T) {
			n := node(t)
			m.setNode(n, func(v *nodeView) { v.Mode = NodeActive })
		},
	}
}

// heal ends all faults: nodes are up, and what was under way is carried out.
func (m *groupModel) heal() {
	for _, s := range m.late {
		if m.hasQuorum() {
			m.change(s)
		}
	}
	m.late = nil
	for id := range m.nodes {
		m.setNode(id, func(v *nodeView) { v.Alive = true })
	}
}

func drawNodes(t *rapid.T, least, most int) []nodeView {
	racks := rapid.IntRange(1, 3).Draw(t, "racks")
	nodes := make([]nodeView, rapid.IntRange(least, most).Draw(t, "nodes"))
	for i := range nodes {
		nodes[i] = nodeView{ID: int32(i + 1), Rack: fmt.Sprint("rack-", i%racks), Alive: true}
	}
	return nodes
}
