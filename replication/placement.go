package replication

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// placementLoad is what the nodes have already.
type placementLoad struct {
	Replicas map[int32]int // replicas on each node
	Leaders  map[int32]int // partitions that each node is to lead
}

// newPlacementLoad counts what partitions put on nodes, or will when they have reached their target.
func newPlacementLoad(partitions ...PartitionAssignment) placementLoad {
	load := placementLoad{map[int32]int{}, map[int32]int{}}
	for _, a := range partitions {
		load.add(placedOn(a), 1)
	}
	return load
}

// add counts a partition on nodes, or takes it off with by = -1.
func (l placementLoad) add(nodes []int32, by int) {
	for i, n := range nodes {
		l.Replicas[n] += by
		if i == 0 {
			l.Leaders[n] += by
		}
	}
}

func (l placementLoad) clone() placementLoad {
	c := newPlacementLoad()
	maps.Copy(c.Replicas, l.Replicas)
	maps.Copy(c.Leaders, l.Leaders)
	return c
}

// placedOn lists the nodes that a partition is or shall be on.
func placedOn(a PartitionAssignment) []int32 {
	if len(a.Target) > 0 {
		return slices.Clone(a.Target)
	}
	return replicaNodes(a)
}

// place chooses nodes for new partitions: those of a partition in as many racks as there are, and on the nodes that have least. The first of
// each is preferred as leader, which is spread evenly too.
func place(nodes []nodeView, load placementLoad, partitions, replicas int) ([][]int32, error) {
	if err := enough(nodes, replicas); err != nil {
		return nil, err
	}
	load = load.clone()
	out := make([][]int32, 0, max(partitions, 0))
	for range partitions {
		s := newSpread(nodes, load)
		for range replicas {
			s.pick()
		}
		load.add(s.chosen, 1)
		out = append(out, s.chosen)
	}
	spreadLeaders(out, load)
	return out, nil
}

// spreadLeaders reorders each partition's nodes so that all nodes are first equally often, as far as the choice of nodes allows.
func spreadLeaders(partitions [][]int32, load placementLoad) {
	for swapped := true; swapped; {
		swapped = false
		for _, from := range slices.Sorted(maps.Keys(load.Leaders)) {
			for handOver(partitions, load, from) {
				swapped = true
			}
		}
	}
}

// handOver takes one leadership from a node and gives it to one that has at least two fewer, by way of others if the two are not on a
// partition together.
func handOver(partitions [][]int32, load placementLoad, from int32) bool {
	leads := map[int32][]int{}
	for i, on := range partitions {
		leads[on[0]] = append(leads[on[0]], i)
	}
	type hop struct{ partition, place int }
	came := map[int32]hop{from: {-1, 0}}
	for queue := []int32{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if load.Leaders[at] <= load.Leaders[from]-2 {
			for n := at; n != from; {
				h := came[n]
				on := partitions[h.partition]
				n = on[0]
				on[0], on[h.place] = on[h.place], on[0]
			}
			load.Leaders[at]++
			load.Leaders[from]--
			return true
		}
		for _, i := range leads[at] {
			for j, n := range partitions[i] {
				if _, ok := came[n]; !ok {
					came[n] = hop{i, j}
					queue = append(queue, n)
				}
			}
		}
	}
	return false
}

// enough tells whether there are as many nodes for replicas as are wanted.
func enough(nodes []nodeView, replicas int) error {
	if replicas < 1 {
		return fmt.Errorf("%w: %d replicas: at least one is needed", ErrInvalidConfig, replicas)
	}
	n := 0
	for _, v := range nodes {
		if v.takes() {
			n++
		}
	}
	if n < replicas {
		return fmt.Errorf("%w: %d of %d nodes are alive and active, %d replicas are wanted: start nodes, end a drain, or ask for fewer replicas",
			ErrNotEnoughNodes, n, len(nodes), replicas)
	}
	return nil
}

// spread chooses nodes for one partition.
type spread struct {
	nodes  map[int32]nodeView
	load   placementLoad
	first  func(node int32) bool // a node to be preferred among those of equally good racks
	racks  map[string]int        // replicas in each rack
	busy   map[string]int        // replicas of all partitions in each rack
	chosen []int32
}

func newSpread(nodes []nodeView, load placementLoad) *spread {
	s := &spread{nodes: map[int32]nodeView{}, load: load, racks: map[string]int{}, busy: map[string]int{}}
	s.first = func(int32) bool { return false }
	for _, n := range nodes {
		s.nodes[n.ID] = n
		s.busy[n.Rack] += load.Replicas[n.ID]
	}
	return s
}

func (s *spread) use(node int32) {
	s.chosen = append(s.chosen, node)
	s.racks[s.nodes[node].Rack]++
}

// pick chooses the best of the nodes left.
func (s *spread) pick() (node int32, ok bool) {
	var pool []nodeView
	for _, n := range s.nodes {
		if n.takes() && !slices.Contains(s.chosen, n.ID) {
			pool = append(pool, n)
		}
	}
	if len(pool) == 0 {
		return 0, false
	}
	best := slices.MinFunc(pool, func(a, b nodeView) int {
		return cmp.Or(
			cmp.Compare(s.racks[a.Rack], s.racks[b.Rack]),
			yesFirst(s.first(a.ID), s.first(b.ID)),
			cmp.Compare(s.load.Replicas[a.ID], s.load.Replicas[b.ID]),
			cmp.Compare(s.busy[a.Rack], s.busy[b.Rack]),
			s.byLeaders(a.ID, b.ID),
			cmp.Compare(a.ID, b.ID),
		)
	})
	s.use(best.ID)
	return best.ID, true
}

// byLeaders has a node come first that leads little, and others follow that lead much: so the first can be the leader.
func (s *spread) byLeaders(a, b int32) int {
	if len(s.chosen) > 0 {
		a, b = b, a
	}
	return cmp.Compare(s.load.Leaders[a], s.load.Leaders[b])
}

func yesFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// retarget chooses the nodes of a partition that is to have a number of replicas: those it is on, or on its way to, as far as they are
// active. What is too many goes, first where the node is down, then where there is no copy, then where its rack has most; what is missing
// comes where place would put it, rather where there is a copy. The answer equals a.Target when nothing has to change.
func retarget(a PartitionAssignment, nodes []nodeView, load placementLoad, replicas int) ([]int32, error) {
	if replicas < 1 {
		return nil, enough(nodes, replicas)
	}
	s := newSpread(nodes, load)
	copied := func(node int32) bool {
		return slices.ContainsFunc(a.Replicas, func(r ReplicaAssignment) bool { return r.Node == node && r.Role == RoleVoter })
	}
	s.first = copied
	before := placedOn(a)
	place := map[int32]int{} // keeps the order: a new node stands where the one that it replaces stood
	var vacant []int
	for i, n := range before {
		if v, ok := s.nodes[n]; ok && v.Mode == NodeActive && !slices.Contains(s.chosen, n) {
			s.use(n)
			place[n] = i
		} else {
			vacant = append(vacant, i)
		}
	}
	for len(s.chosen) > replicas {
		s.drop(copied, place)
	}
	for i := 0; len(s.chosen) < replicas; i++ {
		n, ok := s.pick()
		if !ok {
			return nil, fmt.Errorf("%w: partition %d can be on %d of %d nodes, %d replicas are wanted: start nodes, end a drain, or ask for fewer replicas",
				ErrNotEnoughNodes, a.Partition, len(s.chosen), len(nodes), replicas)
		}
		place[n] = len(before) + i
		if i < len(vacant) {
			place[n] = vacant[i]
		}
	}
	slices.SortFunc(s.chosen, func(x, y int32) int { return cmp.Compare(place[x], place[y]) })
	if len(a.Target) == 0 && slices.Equal(s.chosen, before) {
		return nil, nil
	}
	return s.chosen, nil
}

// drop takes back the node that is missed least, of equal ones the last.
func (s *spread) drop(copied func(int32) bool, place map[int32]int) {
	worst := slices.MinFunc(s.chosen, func(a, b int32) int {
		x, y := s.nodes[a], s.nodes[b]
		return cmp.Or(
			yesFirst(!x.Alive, !y.Alive),
			yesFirst(!copied(a), !copied(b)),
			cmp.Compare(s.racks[y.Rack], s.racks[x.Rack]),
			cmp.Compare(s.load.Replicas[b], s.load.Replicas[a]),
			cmp.Compare(place[b], place[a]),
		)
	})
	s.racks[s.nodes[worst].Rack]--
	s.chosen = slices.DeleteFunc(s.chosen, func(n int32) bool { return n == worst })
}
