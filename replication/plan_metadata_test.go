package replication

import (
	"slices"
	"testing"
)

func TestMetadataTarget(t *testing.T) {
	voter := func(nodes ...int32) (a PartitionAssignment) {
		for _, n := range nodes {
			a.Replicas = append(a.Replicas, ReplicaAssignment{Node: n, Replica: first(n)})
		}
		return a
	}
	rack := func(racks string) []nodeView {
		nodes := nodesNamed(len(racks))
		for i := range nodes {
			nodes[i].Rack = racks[i : i+1]
		}
		return nodes
	}
	with := func(nodes []nodeView, f func([]nodeView)) []nodeView { f(nodes); return nodes }
	for _, c := range []struct {
		name             string
		nodes            []nodeView
		now              PartitionAssignment
		voters, learners []int32
	}{
		{"none", nil, voter(), nil, nil},
		{"one", nodesNamed(1), voter(1), []int32{1}, nil},
		{"two", nodesNamed(2), voter(2), []int32{2}, []int32{1}},
		{"three", nodesNamed(3), voter(2), []int32{1, 2, 3}, nil},
		{"four", nodesNamed(4), voter(4), []int32{1, 2, 4}, []int32{3}},
		{"five", nodesNamed(5), voter(4), []int32{1, 2, 3, 4, 5}, nil},
		{"seven", nodesNamed(7), voter(7), []int32{1, 2, 3, 4, 7}, []int32{5, 6}},
		{"racks", rack("aaabbc"), voter(1), []int32{1, 2, 4, 5, 6}, []int32{3}},
		{"racks of four", rack("aabc"), voter(2), []int32{2, 3, 4}, []int32{1}},
		{"voters stay", rack("aaab"), voter(1, 2, 3), []int32{1, 2, 3}, []int32{4}},
		{"a voter that is down stays", with(nodesNamed(4), func(n []nodeView) { n[0].Alive = false }), voter(1, 2, 3), []int32{1, 2, 3}, []int32{4}},
		{"a learner that is down does not vote", with(nodesNamed(3), func(n []nodeView) { n[2].Alive = false }), voter(1), []int32{1}, []int32{2, 3}},
		{"a voter drains", with(nodesNamed(4), func(n []nodeView) { n[0].Mode = NodeDraining }), voter(1, 2, 3), []int32{1, 2, 3}, []int32{4}},
		{"a voter is removed, two nodes stay", with(nodesNamed(3), func(n []nodeView) { n[1].Mode = NodeRemoved }), voter(1, 2, 3), []int32{1, 3}, nil},
		{"of voters too many, all stay", with(nodesNamed(4), func(n []nodeView) { n[0].Alive = false }), voter(1, 2, 3, 4), []int32{1, 2, 3, 4}, nil},
		{"who copied longest votes", nodesNamed(4), PartitionAssignment{Replicas: []ReplicaAssignment{
			{Node: 1, Replica: first(1)}, {Node: 2, Replica: replicaID(2, 4), Role: RoleLearner},
			{Node: 3, Replica: replicaID(3, 3), Role: RoleLearner}, {Node: 4, Replica: replicaID(4, 2), Role: RoleLearner},
		}}, []int32{1, 3, 4}, []int32{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			voters, learners := metadataTarget(c.nodes, c.now)
			if !slices.Equal(voters, c.voters) || !slices.Equal(learners, c.learners) {
				t.Errorf("voters %v, learners %v; want %v, %v", voters, learners, c.voters, c.learners)
			}
		})
	}
}

func TestMetadataGrowsFromOneToThree(t *testing.T) {
	m := newGroupModel(t, nextMetadataStep, nodesNamed(3), 1)
	for m.done[stepAddLearner] < 2 {
		m.execute(m.decide())
	}
	m.caughtUp[second(2)] = true
	if s := m.decide(); s.Kind != stepNone {
		t.Fatalf("%v: two voters cannot lose one; the third has to be ready before", s.Kind)
	}
	m.run()
	if len(m.voters) != 3 {
		t.Fatal(m)
	}
	if m.done[stepPromote] != 2 || m.done[stepRemove] != 0 || m.done[stepTransferLeader] != 0 {
		t.Error(m.done)
	}
}

func TestNextMetadataStep(t *testing.T) {
	for _, c := range []struct {
		name    string
		on      []int32
		set     func(*groupModel)
		kind    stepKind
		replica uint64
	}{
		{"a learner that is not to vote", []int32{1, 2}, func(m *groupModel) {
			addReplica(m, 3, RoleLearner, m.learners)
			addReplica(m, 4, RoleLearner, m.learners, m.caughtUp)
		}, stepNone, 0},
		{"one of two is promoted, from an even number", []int32{1, 2}, func(m *groupModel) {
			addReplica(m, 3, RoleLearner, m.learners, m.caughtUp)
			addReplica(m, 4, RoleLearner, m.learners)
			draining(m, 1)
		}, stepPromote, second(3)},
		{"a leaving voter waits for who comes", []int32{1, 2, 3}, func(m *groupModel) {
			addReplica(m, 4, RoleLearner, m.learners)
			draining(m, 3)
			setRole(m, 3, RoleLeaving)
		}, stepNone, 0},
		{"a leaving voter makes way for its node's next replica", []int32{1, 2, 3}, func(m *groupModel) {
			m.setNode(4, func(v *nodeView) { v.Mode = NodeRemoved })
			setRole(m, 3, RoleLeaving)
		}, stepRemove, first(3)},
		{"a voter that is down and removed goes though another is missing", []int32{1, 2, 3}, func(m *groupModel) {
			addReplica(m, 4, RoleLearner, m.learners)
			m.setNode(3, func(v *nodeView) { v.Alive, v.Mode = false, NodeRemoved })
		}, stepRecord, 0},
		{"a voter that is removed stays while another is missing", []int32{1, 2, 3}, func(m *groupModel) {
			addReplica(m, 4, RoleLearner, m.learners)
			m.setNode(3, func(v *nodeView) { v.Mode = NodeRemoved })
		}, stepNone, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newGroupModel(t, nextMetadataStep, nodesNamed(4), c.on...)
			m.leader = first(2)
			c.set(m)
			if s := m.decide(); s.Kind != c.kind || s.Replica != c.replica {
				t.Fatalf("%v %x, want %v %x: %s", s.Kind, s.Replica, c.kind, c.replica, m)
			}
		})
	}
}

// Nobody whose node stays loses its vote, whatever their number becomes.
func TestMetadataVotersStay(t *testing.T) {
	m := newGroupModel(t, nextMetadataStep, nodesNamed(3), 1, 2, 3)
	m.leader = first(3)
	draining(m, 3)
	m.run()
	if len(m.voters) != 3 || len(m.learners) != 0 {
		t.Fatal("a node that drains votes on: ", m)
	}
	m.setNode(3, func(v *nodeView) { v.Mode = NodeRemoved })
	m.run()
	if len(m.voters) != 2 || len(m.learners) != 0 || len(m.rec.Replicas) != 2 {
		t.Fatal("the two that stay vote: ", m)
	}
}

func TestMetadataReplacesAVoter(t *testing.T) {
	for name, gone := range map[string]func(*groupModel){
		"removed": func(m *groupModel) { m.setNode(2, func(v *nodeView) { v.Mode = NodeRemoved }) },
		"removed, and down": func(m *groupModel) {
			down(m, 2)
			m.setNode(2, func(v *nodeView) { v.Mode = NodeRemoved })
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newGroupModel(t, nextMetadataStep, nodesNamed(4), 1, 2, 3)
			m.run()
			gone(m)
			m.run()
			if len(m.voters) != 3 || m.voters[first(2)] || len(m.learners) != 0 || m.done[stepAddLearner] != 1 {
				t.Fatal(m, m.done)
			}
		})
	}
}

func TestMetadataVoterThatLostItsDisk(t *testing.T) {
	m := newGroupModel(t, nextMetadataStep, nodesNamed(3), 1, 2, 3)
	m.leader = first(1)
	setRole(m, 3, RoleLost)
	if s := m.decide(); s.Kind != stepRemove || s.Replica != first(3) {
		t.Fatalf("%+v", s)
	}
	m.run()
	if len(m.voters) != 3 || !m.voters[second(3)] {
		t.Fatal(m)
	}
}
