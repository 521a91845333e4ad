package replication

import (
	"slices"
	"testing"
)

// nodesNamed are nodes 1 to n, alive and active, each in a rack of its own.
func nodesNamed(n int) []nodeView {
	out := make([]nodeView, n)
	for i := range out {
		out[i] = nodeView{ID: int32(i + 1), Rack: string(rune('a' + i)), Alive: true}
	}
	return out
}

func down(m *groupModel, nodes ...int32) {
	for _, n := range nodes {
		m.setNode(n, func(v *nodeView) { v.Alive = false })
	}
}

func draining(m *groupModel, nodes ...int32) {
	for _, n := range nodes {
		m.setNode(n, func(v *nodeView) { v.Mode = NodeDraining })
	}
}

// setRole gives the replica on a node a role.
func setRole(m *groupModel, node int32, role Role) {
	for i, r := range m.rec.Replicas {
		if r.Node == node {
			m.rec.Replicas[i].Role = role
		}
	}
}

// addReplica puts a second or later replica into the record, and into one of Raft's sets.
func addReplica(m *groupModel, node int32, role Role, sets ...map[uint64]bool) uint64 {
	id := replicaID(node, m.rec.NextIncarnation)
	m.rec.NextIncarnation++
	m.rec.Replicas = append(m.rec.Replicas, ReplicaAssignment{Node: node, Replica: id, Role: role})
	m.used[id] = true
	for _, set := range sets {
		set[id] = true
	}
	return id
}

// first is the id of a node's first replica, second that of a replica that is the first to be added.
func first(node int32) uint64  { return replicaID(node, firstIncarnation) }
func second(node int32) uint64 { return replicaID(node, firstIncarnation+1) }

func TestNextStep(t *testing.T) {
	on123 := []int32{1, 2, 3}
	for _, c := range []struct {
		name    string
		on      []int32
		set     func(*groupModel)
		kind    stepKind
		replica uint64
	}{
		{"all is well", on123, func(m *groupModel) {}, stepNone, 0},
		{"one node down: it may come back", on123, func(m *groupModel) { down(m, 3) }, stepNone, 0},
		{"no leader answers", []int32{1, 2}, func(m *groupModel) { m.rec.Target = []int32{1}; down(m, 2) }, stepNone, 0},
		{"majority lost for good", on123, func(m *groupModel) { setRole(m, 1, RoleLost); setRole(m, 2, RoleLost) }, stepNone, 0},
		{"a target node without a replica", []int32{1}, func(m *groupModel) { m.rec.Target = []int32{1, 2} }, stepRecord, 0},
		{"a target node that is down", []int32{1}, func(m *groupModel) { m.rec.Target = []int32{1, 2}; down(m, 2) }, stepNone, 0},
		{"a target node that drains", []int32{1}, func(m *groupModel) { m.rec.Target = []int32{1, 2}; draining(m, 2) }, stepNone, 0},
		{"a learner that Raft does not have", []int32{1}, func(m *groupModel) { addReplica(m, 2, RoleLearner) }, stepAddLearner, second(2)},
		{"a learner that copies", []int32{1}, func(m *groupModel) { addReplica(m, 2, RoleLearner, m.learners) }, stepNone, 0},
		{"a learner that has the log", []int32{1}, func(m *groupModel) { addReplica(m, 2, RoleLearner, m.learners, m.caughtUp) }, stepPromote, second(2)},
		{"a learner that had the log and is down", []int32{1}, func(m *groupModel) {
			addReplica(m, 2, RoleLearner, m.learners, m.caughtUp)
			down(m, 2)
		}, stepNone, 0},
		{"a learner that Raft has as voter", []int32{1}, func(m *groupModel) { addReplica(m, 2, RoleLearner, m.voters) }, stepRecord, 0},
		{"a leaving voter", on123, func(m *groupModel) { setRole(m, 3, RoleLeaving) }, stepRemove, first(3)},
		{"a leaving voter that leads", on123, func(m *groupModel) { setRole(m, 3, RoleLeaving); m.leader = first(3) }, stepTransferLeader, first(1)},
		{"a leaving voter that leads, the next one lags", on123, func(m *groupModel) {
			setRole(m, 1, RoleLeaving)
			m.leader = first(1)
			delete(m.caughtUp, first(2))
		}, stepNone, 0},
		{"a leaving voter, another voter is down", on123, func(m *groupModel) { setRole(m, 3, RoleLeaving); down(m, 2) }, stepNone, 0},
		{"a leaving voter that is down", on123, func(m *groupModel) { setRole(m, 3, RoleLeaving); down(m, 3) }, stepRemove, first(3)},
		{"a leaving learner that Raft never had", on123, func(m *groupModel) { addReplica(m, 4, RoleLeaving) }, stepRemove, second(4)},
		{"a leaving replica that Raft has removed", on123, func(m *groupModel) { addReplica(m, 4, RoleLeaving, m.removed) }, stepRecord, 0},
		{"a lost voter", on123, func(m *groupModel) { setRole(m, 2, RoleLost) }, stepRemove, first(2)},
		{"a lost voter, a third is down", on123, func(m *groupModel) { setRole(m, 2, RoleLost); down(m, 3) }, stepNone, 0},
		{"a lost voter goes before a learner is promoted", on123, func(m *groupModel) {
			addReplica(m, 4, RoleLearner, m.learners, m.caughtUp)
			setRole(m, 2, RoleLost)
		}, stepRemove, first(2)},
		{"a lost voter of two", []int32{1, 2}, func(m *groupModel) { setRole(m, 2, RoleLost) }, stepNone, 0},
		{"a record newer than what the leader tells", on123, func(m *groupModel) { addReplica(m, 4, RoleVoter); setRole(m, 3, RoleLeaving) }, stepNone, 0},
		{"a learner that Raft does not have, its node is down", []int32{1}, func(m *groupModel) { addReplica(m, 2, RoleLearner); down(m, 2) }, stepNone, 0},
		{"a learner waits until its node's old replica can go", on123, func(m *groupModel) {
			setRole(m, 3, RoleLeaving)
			addReplica(m, 3, RoleLearner)
			down(m, 2)
		}, stepNone, 0},
		{"a learner that the target does not want", []int32{1}, func(m *groupModel) {
			addReplica(m, 2, RoleLearner, m.learners)
			m.rec.Target = []int32{1, 3}
			down(m, 3)
		}, stepRecord, 0},
		{"a leaving voter waits for the target's", on123, func(m *groupModel) {
			setRole(m, 3, RoleLeaving)
			addReplica(m, 4, RoleLearner, m.learners)
			m.rec.Target = []int32{1, 2, 4}
		}, stepNone, 0},
		{"a leaving voter that is down waits for nothing", on123, func(m *groupModel) {
			setRole(m, 3, RoleLeaving)
			addReplica(m, 4, RoleLearner, m.learners)
			m.rec.Target = []int32{1, 2, 4}
			down(m, 3)
		}, stepRemove, first(3)},
		{"of leaving voters the leader is last", on123, func(m *groupModel) {
			setRole(m, 1, RoleLeaving)
			setRole(m, 3, RoleLeaving)
		}, stepRemove, first(3)},
		{"all voters leave: one of them leads on", []int32{1, 2}, func(m *groupModel) {
			setRole(m, 1, RoleLeaving)
			setRole(m, 2, RoleLeaving)
			m.rec.Target = []int32{1}
		}, stepTransferLeader, first(2)},
		{"the only voter cannot leave", []int32{1}, func(m *groupModel) { setRole(m, 1, RoleLeaving) }, stepRecord, 0},
		{"a member that no record names", on123, func(m *groupModel) { m.learners[second(4)] = true }, stepRecord, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newGroupModel(t, nextStep, nodesNamed(5), c.on...)
			m.leader = m.rec.Replicas[0].Replica
			c.set(m)
			s := m.decide()
			if s.Kind != c.kind || s.Replica != c.replica {
				t.Fatalf("%v %x, want %v %x: %s", s.Kind, s.Replica, c.kind, c.replica, m)
			}
			if s.Kind != stepNone {
				m.execute(s)
				if s.Shard+s.Record.Shard == 0 {
					t.Error("the step does not say whose it is")
				}
			}
		})
	}
}

func TestWhatHasLeftIsNotMissed(t *testing.T) {
	m := newGroupModel(t, nextStep, nodesNamed(3), 1, 2, 3)
	setRole(m, 3, RoleLeaving)
	m.run()
	if len(m.voters) != 2 || len(m.rec.Target) != 0 {
		t.Fatal(m)
	}
}

func TestAGroupThatGossipHasDownIsLeftAlone(t *testing.T) {
	m := newGroupModel(t, nextStep, nodesNamed(3), 1, 2, 3)
	setRole(m, 3, RoleLeaving)
	g := m.view()
	down(m, 1, 2)
	if s := nextStep(g, m.nodes); s.Kind != stepNone {
		t.Fatalf("%+v", s)
	}
}

func TestAGroupThatLostItsMajorityIsLeftAlone(t *testing.T) {
	m := newGroupModel(t, nextStep, nodesNamed(2), 1, 2)
	setRole(m, 2, RoleLost)
	g := groupView{Assignment: m.rec, Known: true, Leader: first(1), Voters: m.voters, CaughtUp: m.caughtUp}
	if s := nextStep(g, m.nodes); s.Kind != stepNone {
		t.Fatalf("%+v: one of two voters is no quorum", s)
	}
}

func TestIncarnationsGoOnWhereNoCounterWasKept(t *testing.T) {
	m := newGroupModel(t, nextStep, nodesNamed(3), 1)
	m.rec.NextIncarnation = 0
	m.removed[replicaID(2, 5)] = true
	m.rec.Target = []int32{1, 2, 3}
	s := m.decide()
	if s.Kind != stepRecord || s.Record.Replicas[1].Replica != replicaID(2, 6) || s.Record.Replicas[2].Replica != replicaID(3, 7) {
		t.Fatalf("%+v", s)
	}
}

func TestLostReplicaComesBackOnItsNode(t *testing.T) {
	m := newGroupModel(t, nextStep, nodesNamed(3), 1, 2, 3)
	setRole(m, 2, RoleLost)
	m.run()
	if on := replicaNodes(m.rec); !slices.Equal(on, []int32{1, 2, 3}) || !m.voters[second(2)] {
		t.Fatal(m)
	}
}

func TestLostReplicaIsReplacedWhereTheTargetSays(t *testing.T) {
	m := newGroupModel(t, nextStep, nodesNamed(4), 1, 2, 3)
	setRole(m, 2, RoleLost)
	m.rec.Target = []int32{1, 4, 3}
	m.run()
	if on := replicaNodes(m.rec); !slices.Equal(on, []int32{1, 4, 3}) {
		t.Fatal(m)
	}
}

func TestLostReplicaWaitsForItsNode(t *testing.T) {
	m := newGroupModel(t, nextStep, nodesNamed(4), 1, 2, 3)
	setRole(m, 2, RoleLost)
	down(m, 2)
	m.run()
	if len(m.voters) != 2 || !slices.Equal(m.rec.Target, []int32{1, 2, 3}) {
		t.Fatal("a lost replica is removed, and its node stays wanted: ", m)
	}
	m.setNode(2, func(v *nodeView) { v.Alive = true })
	m.run()
	if len(m.voters) != 3 || len(m.rec.Target) != 0 {
		t.Fatal(m)
	}
}

// TestMoveTakesFewSteps counts: a replica costs being added, promoted or removed once, and a move few records.
func TestMoveTakesFewSteps(t *testing.T) {
	for _, c := range []struct {
		name                              string
		from, to                          []int32
		records, added, removed, transfer int
	}{
		{"nothing", []int32{1, 2, 3}, []int32{1, 2, 3}, 1, 0, 0, 0}, // the target is cleared
		{"one to three", []int32{1}, []int32{1, 2, 3}, 3, 2, 0, 0},
		{"three to one", []int32{1, 2, 3}, []int32{1}, 3, 0, 2, 0},
		{"one replica", []int32{1, 2, 3}, []int32{1, 4, 3}, 3, 1, 1, 0},
		{"the leader", []int32{1, 2, 3}, []int32{4, 2, 3}, 3, 1, 1, 1},
		{"all of them", []int32{1, 2}, []int32{3, 4}, 5, 2, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newGroupModel(t, nextStep, nodesNamed(5), c.from...)
			m.leader = m.rec.Replicas[0].Replica
			m.rec.Target = c.to
			m.run()
			if on := replicaNodes(m.rec); !slices.Equal(on, c.to) {
				t.Fatal("the order of the target is that of the replicas: ", m)
			}
			got := []int{m.done[stepRecord], m.done[stepAddLearner], m.done[stepPromote], m.done[stepRemove], m.done[stepTransferLeader]}
			if want := []int{c.records, c.added, c.added, c.removed, c.transfer}; !slices.Equal(got, want) {
				t.Errorf("records, additions, promotions, removals, transfers: %v, want %v", got, want)
			}
		})
	}
}

func TestTargetThatTurnsBack(t *testing.T) {
	m := newGroupModel(t, nextStep, nodesNamed(6), 1, 2, 3)
	m.rec.Target = []int32{4, 5, 6}
	for m.done[stepRemove] == 0 {
		if s := m.decide(); s.Kind != stepNone {
			m.execute(s)
		} else {
			m.catchUp()
		}
	}
	m.rec.Target = []int32{1, 2, 3}
	m.run()
	if on := replicaNodes(m.rec); !slices.Equal(on, []int32{1, 2, 3}) {
		t.Fatal(m)
	}
}
