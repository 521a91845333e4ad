package replication

import (
	"reflect"
	"slices"
	"testing"
)

func TestLeaderMoves(t *testing.T) {
	for _, c := range []struct {
		name   string
		leader int32
		set    func(*groupModel)
		to     int32 // zero: it stays
	}{
		{"led as it shall be", 1, func(*groupModel) {}, 0},
		{"toward the first", 3, func(*groupModel) {}, 1},
		{"the first is down", 2, func(m *groupModel) { down(m, 1) }, 0},
		{"the first is down, toward the second", 3, func(m *groupModel) { down(m, 1) }, 2},
		{"the first lags", 2, func(m *groupModel) { delete(m.caughtUp, first(1)) }, 0},
		{"the first drains", 1, func(m *groupModel) { draining(m, 1) }, 2},
		{"the first leaves", 1, func(m *groupModel) { setRole(m, 1, RoleLeaving) }, 2},
		{"the leader drains, nobody else can", 3, func(m *groupModel) {
			draining(m, 3)
			delete(m.caughtUp, first(1))
			delete(m.caughtUp, first(2))
		}, 0},
		{"all drain", 3, func(m *groupModel) { draining(m, 1, 2, 3) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newGroupModel(t, nextStep, nodesNamed(3), 1, 2, 3)
			m.leader = first(c.leader)
			c.set(m)
			moves := leaderMoves([]groupView{m.view()}, m.nodes, 10)
			if c.to == 0 && len(moves) == 0 {
				return
			}
			want := []step{{Kind: stepTransferLeader, Shard: 7, Replica: first(c.to), Node: c.to}}
			if !reflect.DeepEqual(moves, want) {
				t.Fatalf("%+v, want %+v", moves, want)
			}
		})
	}
}

func TestLeaderMovesAreBounded(t *testing.T) {
	nodes := map[int32]nodeView{}
	for _, n := range nodesNamed(3) {
		nodes[n.ID] = n
	}
	var groups []groupView
	for i := range 6 {
		m := newGroupModel(t, nextStep, nodesNamed(3), 1, 2, 3)
		m.rec.Shard = uint64(i)
		m.leader = first(int32(2 + i%2)) // node 3 leads those with odd numbers
		groups = append(groups, m.view())
	}
	n := nodes[3]
	n.Mode = NodeDraining
	nodes[3] = n
	var shards []uint64
	for _, s := range leaderMoves(groups, nodes, 4) {
		shards = append(shards, s.Shard)
	}
	if !slices.Equal(shards, []uint64{1, 3, 5, 0}) {
		t.Errorf("moves %v: a node that drains gives up its groups first", shards)
	}
	if moves := leaderMoves(groups, nodes, 0); len(moves) != 0 {
		t.Error(moves)
	}
}
