package replication

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPlaceNeedsNodes(t *testing.T) {
	nodes := nodesNamed(4)
	nodes[1].Alive = false
	nodes[2].Mode = NodeDraining
	_, err := place(nodes, newPlacementLoad(), 1, 3)
	if !errors.Is(err, ErrNotEnoughNodes) || !strings.Contains(err.Error(), "2 of 4 nodes") || !strings.Contains(err.Error(), "3 replicas") {
		t.Error(err)
	}
	if _, err := place(nodes, newPlacementLoad(), 1, 0); !errors.Is(err, ErrInvalidConfig) {
		t.Error(err)
	}
	got, err := place(nodes, newPlacementLoad(), 2, 2)
	if err != nil || fmt.Sprint(got) != "[[1 4] [4 1]]" {
		t.Error(got, err)
	}
}

func TestPlaceFillsTheNodesThatHaveLeast(t *testing.T) {
	load := newPlacementLoad(PartitionAssignment{Target: []int32{1, 2}}, PartitionAssignment{Target: []int32{1, 3}})
	got, err := place(nodesNamed(4), load, 2, 2)
	if err != nil || fmt.Sprint(got) != "[[4 2] [3 4]]" {
		t.Error(got, err)
	}
	if load.Replicas[4] != 0 {
		t.Error("place changed the load that it was given")
	}
}

// TestPlaceSpreads: no rack has two replicas of a partition while another has none, nodes have equally many, and are preferred as leader
// equally often. Racks are equally large here; others cannot be both. The few nodes of a small topic may all lead as many as the rest or
// more, so several topics can differ by one more.
func TestPlaceSpreads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		racks, each := rapid.IntRange(1, 4).Draw(t, "racks"), rapid.IntRange(1, 4).Draw(t, "nodes in each")
		nodes := make([]nodeView, racks*each)
		for i := range nodes {
			nodes[i] = nodeView{ID: int32(i + 1), Rack: fmt.Sprint(i % racks), Alive: true}
		}
		replicas := rapid.IntRange(1, min(5, len(nodes))).Draw(t, "replicas")
		load := newPlacementLoad()
		for topic := range rapid.IntRange(1, 4).Draw(t, "topics") {
			got, err := place(nodes, load, rapid.IntRange(1, 40).Draw(t, "partitions"), replicas)
			if err != nil {
				t.Fatal(err)
			}
			for _, on := range got {
				checkRacks(t, nodes, on, replicas)
				load.add(on, 1)
			}
			if d := difference(nodes, load.Replicas); d > 1 {
				t.Fatalf("replicas differ by %d: %v", d, load.Replicas)
			}
			if d := difference(nodes, load.Leaders); d > 1 && topic == 0 || d > 2 {
				t.Fatalf("leaders differ by %d: %v", d, load.Leaders)
			}
		}
	})
}

func difference(nodes []nodeView, counts map[int32]int) int {
	least, most := counts[nodes[0].ID], counts[nodes[0].ID]
	for _, n := range nodes {
		least, most = min(least, counts[n.ID]), max(most, counts[n.ID])
	}
	return most - least
}

// checkRacks checks that replicas are on different nodes, and in as many racks as there can be.
func checkRacks(t failer, nodes []nodeView, on []int32, replicas int) {
	t.Helper()
	inRack, size := map[string]int{}, map[string]int{}
	seen := map[int32]bool{}
	for _, n := range nodes {
		if n.Mode == NodeActive {
			size[n.Rack]++
		}
		if slices.Contains(on, n.ID) {
			inRack[n.Rack]++
			seen[n.ID] = true
		}
	}
	if len(on) != replicas || len(seen) != replicas {
		t.Fatalf("%v are not %d nodes", on, replicas)
	}
	for a := range size {
		for b := range size {
			if inRack[a] > inRack[b]+1 && inRack[b] < size[b] {
				t.Fatalf("rack %s has %d replicas, rack %s has %d, and there are more nodes: %v", a, inRack[a], b, inRack[b], on)
			}
		}
	}
}

func TestRetarget(t *testing.T) {
	mode := func(nodes []nodeView, id int32, m NodeMode) []nodeView { nodes[id-1].Mode = m; return nodes }
	dead := func(nodes []nodeView, id int32) []nodeView { nodes[id-1].Alive = false; return nodes }
	racks := func(names string) []nodeView {
		nodes := nodesNamed(len(names))
		for i := range nodes {
			nodes[i].Rack = names[i : i+1]
		}
		return nodes
	}
	on := func(nodes ...int32) (a PartitionAssignment) {
		for _, n := range nodes {
			a.Replicas = append(a.Replicas, ReplicaAssignment{Node: n, Replica: first(n)})
		}
		return a
	}
	toward := func(a PartitionAssignment, target ...int32) PartitionAssignment { a.Target = target; return a }
	for _, c := range []struct {
		name     string
		now      PartitionAssignment
		nodes    []nodeView
		replicas int
		want     []int32
	}{
		{"as it is", on(1, 2, 3), nodesNamed(4), 3, nil},
		{"a node down stays", on(1, 2, 3), dead(nodesNamed(4), 2), 3, nil},
		{"more", on(2), nodesNamed(3), 3, []int32{2, 1, 3}},
		{"fewer", on(3, 2, 1), nodesNamed(3), 2, []int32{3, 2}},
		{"fewer, the one down goes", on(3, 2, 1), dead(nodesNamed(3), 3), 2, []int32{2, 1}},
		{"fewer, the full rack gives", on(1, 2, 3), racks("aab"), 2, []int32{1, 3}},
		{"draining: its place is taken", on(1, 2, 3), mode(nodesNamed(4), 2, NodeDraining), 3, []int32{1, 4, 3}},
		{"removed", on(1, 2, 3), mode(nodesNamed(4), 1, NodeRemoved), 3, []int32{4, 2, 3}},
		{"a node that nobody knows", on(1, 9), nodesNamed(2), 2, []int32{1, 2}},
		{"draining, and fewer", on(1, 2, 3), mode(nodesNamed(3), 2, NodeDraining), 2, []int32{1, 3}},
		{"the rack that is free", on(1, 2), mode(racks("abab"), 2, NodeDraining), 2, []int32{1, 4}},
		{"on its way stays on its way", toward(on(1, 2), 1, 3), nodesNamed(4), 2, []int32{1, 3}},
		{"the way back is shortest", toward(on(1, 3), 1, 4), mode(nodesNamed(4), 4, NodeDraining), 2, []int32{1, 3}},
		{"fewer, what has no copy goes", toward(on(1, 2), 1, 4, 2), nodesNamed(4), 2, []int32{1, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := retarget(c.now, c.nodes, newPlacementLoad(c.now), c.replicas)
			if err != nil || !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
				t.Errorf("%v %v, want %v", got, err, c.want)
			}
		})
	}
	_, err := retarget(on(1, 2, 3), mode(nodesNamed(4), 3, NodeDraining), newPlacementLoad(), 4)
	if !errors.Is(err, ErrNotEnoughNodes) || !strings.Contains(err.Error(), "3 of 4 nodes") {
		t.Error(err)
	}
}

// TestRetargetMovesLittle: whatever is replaced, nodes that can stay do, and racks are as even as place makes them unless what stays is not.
func TestRetargetMovesLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t, 2, 9)
		old := rapid.IntRange(1, min(5, len(nodes))).Draw(t, "replicas")
		placed, err := place(nodes, newPlacementLoad(), 20, old)
		if err != nil {
			t.Fatal(err)
		}
		var parts []PartitionAssignment
		for i, on := range placed {
			parts = append(parts, newGroupModel(t, nextStep, nodes, on...).rec)
			parts[i].Partition = int32(i)
		}
		load := newPlacementLoad(parts...)
		if rapid.Bool().Draw(t, "a node drains") {
			nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "which")].Mode = NodeDraining
		}
		want := rapid.IntRange(1, 5).Draw(t, "new replicas")
		for _, a := range parts {
			before := maps.Clone(load.Replicas)
			target, err := retarget(a, nodes, load, want)
			if !maps.Equal(before, load.Replicas) {
				t.Fatal("retarget changed the load that it was given")
			}
			if enough(nodes, want) != nil {
				if !errors.Is(err, ErrNotEnoughNodes) {
					t.Fatal(err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			now, can := placedOn(a), 0
			stay := 0
			for _, n := range now {
				if nodes[n-1].Mode == NodeActive {
					can++
				}
				if target == nil || slices.Contains(target, n) {
					stay++
				}
			}
			if target == nil && can == len(now) && len(now) == want {
				continue
			}
			if stay != min(can, want) {
				t.Fatalf("from %v to %v: %d stay, %d could", now, target, stay, min(can, want))
			}
			checkDistinct(t, nodes, target, want)
			a.Target = target
			if again, err := retarget(a, nodes, load, want); err != nil || !slices.Equal(again, target) {
				t.Fatalf("%v, then %v: %v", target, again, err)
			}
			load.add(now, -1)
			load.add(target, 1)
		}
	})
}

func checkDistinct(t failer, nodes []nodeView, on []int32, replicas int) {
	t.Helper()
	seen := map[int32]bool{}
	for _, n := range on {
		if seen[n] || !nodes[n-1].takes() {
			t.Fatalf("%v: node %d twice, or not to be used", on, n)
		}
		seen[n] = true
	}
	if len(on) != replicas {
		t.Fatalf("%v are not %d nodes", on, replicas)
	}
}

func BenchmarkPlace(b *testing.B) {
	nodes := nodesNamed(30)
	for i := range nodes {
		nodes[i].Rack = fmt.Sprint(i % 3)
	}
	for b.Loop() {
		if _, err := place(nodes, newPlacementLoad(), MaxPartitions, 3); err != nil {
			b.Fatal(err)
		}
	}
}
