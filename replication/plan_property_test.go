package replication

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPlanConverges: whatever happens to nodes, disks, targets and steps on the way, no step does harm, and once the nodes are back the
// group is where it shall be and stays there.
func TestPlanConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t, 1, 7)
		replicas := rapid.IntRange(1, min(len(nodes), 5)).Draw(t, "replicas")
		placed, err := place(nodes, newPlacementLoad(), 1, replicas)
		if err != nil {
			t.Fatal(err)
		}
		m := newGroupModel(t, nextStep, nodes, placed[0]...)
		actions := m.faults()
		aim := func() {
			if target, err := retarget(m.rec, sortedNodes(m.nodes), newPlacementLoad(m.rec), replicas); err == nil {
				m.rec.Target = target
			}
		}
		drain := actions["drain"]
		actions["drain"] = func(t *rapid.T) { drain(t); aim() }
		actions["replication factor"] = func(t *rapid.T) {
			replicas = rapid.IntRange(1, 5).Draw(t, "replicas")
			aim()
		}
		t.Repeat(actions)
		m.heal()
		aim()
		want := placedOn(m.rec)
		wasAimed := len(m.rec.Target) > 0
		m.run()
		if got := replicaNodes(m.rec); wasAimed && targetTakes(m, want) && !slices.Equal(got, want) {
			t.Fatalf("on %v, not on %v: %s", got, want, m)
		}
		for _, r := range m.rec.Replicas {
			if targetTakes(m, want) && (r.Role != RoleVoter || !m.voters[r.Replica]) {
				t.Fatalf("%+v does not vote: %s", r, m)
			}
		}
		if targetTakes(m, want) && (len(m.rec.Target) > 0 || len(m.voters) != len(m.rec.Replicas) || len(m.learners) > 0) {
			t.Fatalf("not there: %s", m)
		}
	})
}

// targetTakes tells whether all nodes of a target can be given replicas: too few may be active.
func targetTakes(m *groupModel, target []int32) bool {
	return !slices.ContainsFunc(target, func(n int32) bool { return !m.nodes[n].takes() })
}

// TestPlanMetadataConverges is the same for the metadata's group.
func TestPlanMetadataConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t, 1, 8)
		var on []int32
		for i := range rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "voters") {
			if i < len(nodes) {
				on = append(on, nodes[i].ID)
			}
		}
		m := newGroupModel(t, nextMetadataStep, nodes, on...)
		m.everyone = true
		t.Repeat(m.faults())
		m.heal()
		m.setNode(1, func(v *nodeView) { v.Mode = NodeActive }) // somebody has to have it
		m.run()
		active, voting := 0, 0
		for _, n := range sortedNodes(m.nodes) {
			i := slices.IndexFunc(m.rec.Replicas, func(r ReplicaAssignment) bool { return r.Node == n.ID })
			if has := i >= 0; has != (n.Mode != NodeRemoved) {
				t.Fatalf("node %d: a replica: %v: %s", n.ID, has, m)
			}
			if i < 0 {
				continue
			}
			if n.Mode == NodeActive {
				active++
			}
			r := m.rec.Replicas[i]
			if m.voters[r.Replica] != (r.Role == RoleVoter) || m.learners[r.Replica] != (r.Role == RoleLearner) {
				t.Fatalf("node %d is not to Raft what it is in the record: %s", n.ID, m)
			}
			if r.Role == RoleVoter {
				voting++
			}
		}
		// There may be more voters than that: nobody loses its vote. Or one less, where one more would make them even.
		if want := metadataVoters(active); voting != len(m.voters) || voting < want-1 || (voting < want && voting%2 == 0) {
			t.Fatalf("%d voters of %d nodes, not %d: %s", voting, active, want, m)
		}
	})
}
