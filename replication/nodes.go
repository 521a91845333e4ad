package replication

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
)

// Nodes as the controller sees them: how one becomes a member, is drained, is removed, and comes back with an empty disk.

// registration is what a node says of itself.
type registration struct {
	ID      int32  `json:"id"`
	Dir     string `json:"dir"`
	Address string `json:"address,omitempty"`
	Rack    string `json:"rack,omitempty"`
	Holds   uint64 `json:"holds,omitempty"` // its replica of the metadata, 0 when it has none
	Lost    uint64 `json:"lost,omitempty"`  // the one that it had and that is damaged
	Stays   bool   `json:"stays,omitempty"` // that one takes part until it is removed

	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// registered is what it is told.
type registered struct {
	// Replica is the node's replica of the metadata; 0: it gets one when the one that it lost is removed.
	Replica uint64 `json:"replica"`
}

func (h *Host) registration() registration {
	r := registration{ID: h.cfg.Node.ID, Dir: hex.EncodeToString(h.cfg.Node.Dir[:]), Address: h.cfg.Address, Rack: h.cfg.Rack, Endpoints: h.endpoints()}
	if p := h.claimed(metadataShard); p != nil {
		r.Holds = p.spec.Replica
	}
	return r
}

// register makes the records agree with what this node is now.
func (c *Controller) register(ctx context.Context) error {
	c.mu.RLock()
	n, ok := c.mu.nodes[c.host.cfg.Node.ID]
	c.mu.RUnlock()
	me := c.host.cfg
	if ok && n.Dir == me.Node.Dir && n.Address == me.Address && n.Rack == me.Rack && slices.Equal(n.Endpoints, c.host.endpoints()) && n.Mode != NodeRemoved {
		return nil
	}
	_, err := askAgain(ctx, c, "register", c.host.registration(), (*Controller).registerNode)
	return err
}

func (c *Controller) registerNode(ctx context.Context, q registration) (out registered, err error) {
	err = c.decide(ctx, func(ctx context.Context) error {
		n := NodeState{ID: q.ID, Address: q.Address, Rack: q.Rack, Endpoints: q.Endpoints}
		if err := cmpError(decodeID(&n.Dir, q.Dir), checkEndpoints(q.Endpoints)); err != nil {
			return err
		}
		if n.ID < 1 {
			return fmt.Errorf("%w: node id %d: ids begin with 1", ErrInvalidConfig, n.ID)
		}
		c.mu.RLock()
		old, known := c.mu.nodes[n.ID]
		c.mu.RUnlock()
		var records []metadataRecord
		voter := c.votesOnMetadata(n.ID)
		switch {
		case known && old.Mode == NodeRemoved && old.Dir == n.Dir:
			return fmt.Errorf("%w: node %d was removed from the cluster: give it an empty directory to come back as a new one", ErrForeignDir, n.ID)
		case known && old.Mode != NodeRemoved && old.Dir != n.Dir:
			if c.answers(ctx, old) {
				return fmt.Errorf("%w: %d, by another node at %s: choose another NodeID", ErrNodeExists, n.ID, old.Address)
			}
			records = c.lostRecords(n.ID, RoleLost, false)
		case q.Lost != 0 && q.Lost == c.metadataReplicaOf(n.ID):
			n.Mode = old.Mode
			role := RoleLost
			if q.Stays {
				role = RoleLeaving
			}
			records = c.lostRecords(n.ID, role, true)
		case voter != 0 && voter != q.Holds: // it may have voted, and does not know
			records = c.lostRecords(n.ID, RoleLost, true)
		case known && old.Mode != NodeRemoved:
			n.Mode = old.Mode
		}
		if !known || !old.equal(&n) {
			records = append(records, nodeRecord(n))
		}
		if r := c.metadataFor(n.ID, records); r.key != "" {
			records = append(records, r)
		}
		if len(records) > 0 {
			if err := c.write(ctx, records...); err != nil {
				return err
			}
		}
		out.Replica = c.metadataReplicaOf(n.ID)
		return nil
	})
	c.wakeGovernor()
	return out, err
}

// answers asks whether the node with the known directory is alive: then another one must not take its id.
func (c *Controller) answers(ctx context.Context, n NodeState) bool {
	if n.ID == c.host.cfg.Node.ID {
		return true
	}
	return c.host.directoryOf(ctx, n.ID) == n.Dir
}

// lostRecords are those of all partitions, or of the metadata alone, that had a replica on a node whose disk is gone.
func (c *Controller) lostRecords(node int32, role Role, metadata bool) (out []metadataRecord) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, t := range c.mu.topicsByName() {
		changed := t
		if metadata && t.Name != MetadataTopic {
			continue
		}
		for _, a := range t.Partitions {
			if b, ok := a.lose(role, func(r ReplicaAssignment) bool { return r.Node == node }); ok {
				changed = changed.with(b)
			}
		}
		if changed != t {
			out = append(out, topicRecord(changed, false))
		}
	}
	return out
}

// lose gives replicas the role of those that are lost, or leave; ok is false when nothing changed. A target brings a new one to the node.
func (a PartitionAssignment) lose(role Role, which func(ReplicaAssignment) bool) (_ PartitionAssignment, ok bool) {
	target := placedOn(a)
	a.Replicas = slices.Clone(a.Replicas)
	for i, r := range a.Replicas {
		if which(r) && r.Role != RoleLost && r.Role != RoleLeaving {
			a.Replicas[i].Role, ok = role, true
		}
	}
	if ok && a.Target == nil && a.Shard != metadataShard {
		a.Target = target
	}
	return a, ok
}

// metadataFor is the record that gives a node its replica of the metadata, if it has none and no earlier one is in the way. The governor would do the
// same; here it makes that a node which joins need not wait for it.
func (c *Controller) metadataFor(node int32, pending []metadataRecord) (none metadataRecord) {
	key := topicRecord(&TopicState{}, false).key
	if slices.ContainsFunc(pending, func(r metadataRecord) bool { return r.key == key }) {
		return none // one that is lost is removed first
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	t := c.mu.topics[MetadataTopic]
	a := t.Partitions[0]
	if slices.ContainsFunc(a.Replicas, func(r ReplicaAssignment) bool { return r.Node == node }) {
		if !c.mu.recorded { // the first to register brings the initial members with it
			return topicRecord(t, false)
		}
		return none
	}
	a.Replicas = append(slices.Clone(a.Replicas), ReplicaAssignment{Node: node, Replica: replicaID(node, a.NextIncarnation), Role: RoleLearner})
	a.NextIncarnation++
	return topicRecord(t.with(a), false)
}

// metadataReplicaOf is the replica of the metadata that a node has to run, 0 when there is none yet.
func (c *Controller) metadataReplicaOf(node int32) uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, r := range c.mu.topics[MetadataTopic].Partitions[0].Replicas {
		if r.Node == node && (r.Role == RoleVoter || r.Role == RoleLearner) {
			return r.Replica
		}
	}
	return 0
}

// votesOnMetadata is the node's replica of the metadata if that votes, else 0.
func (c *Controller) votesOnMetadata(node int32) uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, r := range c.mu.topics[MetadataTopic].Partitions[0].Replicas {
		if r.Node == node && r.Role == RoleVoter {
			return r.Replica
		}
	}
	return 0
}

type nodeModeRequest struct {
	ID   int32    `json:"id"`
	Mode NodeMode `json:"mode"`
}

// DrainNode moves all replicas and leaderships off a node, online, and keeps new ones away. It returns when that is decided; Drained tells when it is done.
// ErrNotEnoughNodes when a partition would have nowhere to go.
func (c *Controller) DrainNode(ctx context.Context, id int32) error {
	_, err := ask(ctx, c, "node-mode", nodeModeRequest{id, NodeDraining}, (*Controller).setNodeMode)
	return err
}

// ActivateNode takes a drain back.
func (c *Controller) ActivateNode(ctx context.Context, id int32) error {
	_, err := ask(ctx, c, "node-mode", nodeModeRequest{id, NodeActive}, (*Controller).setNodeMode)
	return err
}

// RemoveNode takes a node out of the cluster for good: what is left of its replicas is replaced elsewhere, as soon as there are nodes for it, and its
// directory is refused from then on. The last node cannot be removed.
func (c *Controller) RemoveNode(ctx context.Context, id int32) error {
	_, err := ask(ctx, c, "node-mode", nodeModeRequest{id, NodeRemoved}, (*Controller).setNodeMode)
	return err
}

// Drained says whether a node has no replica of a topic any more.
func (c *Controller) Drained(id int32) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, t := range c.mu.topics {
		for _, a := range t.Partitions {
			if t.Name != MetadataTopic && slices.ContainsFunc(a.Replicas, func(r ReplicaAssignment) bool { return r.Node == id }) {
				return false
			}
		}
	}
	return true
}

func (c *Controller) setNodeMode(ctx context.Context, q nodeModeRequest) (nothing, error) {
	err := c.decide(ctx, func(ctx context.Context) error {
		c.mu.RLock()
		n, ok := c.mu.nodes[q.ID]
		left := len(c.mu.activeNodes())
		c.mu.RUnlock()
		switch {
		case !ok || n.Mode == NodeRemoved:
			return fmt.Errorf("%w: %d", ErrUnknownNode, q.ID)
		case q.Mode > NodeRemoved:
			return fmt.Errorf("%w: node mode %d", ErrInvalidConfig, q.Mode)
		case q.Mode != NodeActive && left < 2:
			return fmt.Errorf("%w: node %d is the last one", ErrNotEnoughNodes, q.ID)
		case n.Mode == q.Mode:
			return nil
		}
		n.Mode = q.Mode
		records := []metadataRecord{nodeRecord(n)}
		if q.Mode != NodeActive {
			moved, err := c.evacuate(q.ID, q.Mode)
			if err != nil {
				return err
			}
			records = append(records, moved...)
		}
		return c.write(ctx, records...)
	})
	c.wakeGovernor()
	return nothing{}, err
}

// evacuate are the records that give every partition of a node a target without it. A node that is removed although partitions have nowhere else
// to go takes those replicas along until there are nodes for them: the others stay. Internal topics have as many as there are nodes for, so a drain
// takes them along too.
func (c *Controller) evacuate(node int32, mode NodeMode) (out []metadataRecord, err error) {
	nodes := c.nodeViews()
	for i := range nodes {
		if nodes[i].ID == node {
			nodes[i].Mode = mode
		}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	load := newPlacementLoad(c.mu.assignments()...)
	for _, t := range c.mu.topicsByName() {
		if t.Name == MetadataTopic {
			continue
		}
		changed := t
		for _, a := range t.Partitions {
			if !slices.Contains(placedOn(a), node) {
				continue
			}
			target, err := retarget(a, nodes, load, len(placedOn(a)))
			if err != nil && (mode == NodeRemoved || t.Internal) && len(placedOn(a)) > 1 {
				target, err = retarget(a, nodes, load, len(placedOn(a))-1)
				if !t.Internal {
					a.Wanted = max(a.Wanted, len(placedOn(a)))
				}
			}
			if err != nil {
				return nil, fmt.Errorf("%s-%d: %w", t.Name, a.Partition, err)
			}
			a.Target = target
			changed = changed.with(a)
		}
		if changed != t {
			out = append(out, topicRecord(changed, false))
		}
	}
	return out, nil
}

// assignments lists those of all topics but the metadata.
func (v *view) assignments() (out []PartitionAssignment) {
	for _, t := range v.topicsByName() {
		if t.Name != MetadataTopic {
			out = append(out, t.Partitions...)
		}
	}
	return out
}

// nodeViews is what the planner is to know of the nodes, those included that were removed: what they still have counts until it is replaced.
func (c *Controller) nodeViews() (out []nodeView) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, n := range c.mu.nodes {
		out = append(out, nodeView{ID: n.ID, Rack: n.Rack, Mode: n.Mode, Alive: c.host.reachable(n.ID)})
	}
	for _, r := range c.mu.topics[MetadataTopic].Partitions[0].Replicas { // one that forms the cluster and has not registered yet
		if _, ok := c.mu.nodes[r.Node]; !ok {
			out = append(out, nodeView{ID: r.Node, Alive: c.host.reachable(r.Node)})
		}
	}
	slices.SortFunc(out, func(a, b nodeView) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func (c *Controller) nodeViewMap() map[int32]nodeView {
	out := map[int32]nodeView{}
	for _, n := range c.nodeViews() {
		out[n.ID] = n
	}
	return out
}

// place chooses nodes for new partitions. replicas 0 means the default: three, or as many as there are active nodes when they are fewer.
func (c *Controller) place(partitions, replicas int) ([][]int32, error) {
	nodes := c.nodeViews()
	if replicas == 0 {
		for _, n := range nodes {
			if n.takes() && replicas < defaultReplicas {
				replicas++
			}
		}
	}
	c.mu.RLock()
	load := newPlacementLoad(c.mu.assignments()...)
	c.mu.RUnlock()
	return place(nodes, load, partitions, max(replicas, 1))
}

// defaultReplicas is the replication factor of topics that do not say.
const defaultReplicas = 3

type reassignRequest struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"` // -1: all
	Replicas  int     `json:"replicas,omitempty"`
	Nodes     []int32 `json:"nodes,omitempty"`
}

// SetReplicas changes a topic's replication factor, online. It returns when that is decided; partitions follow one step at a time.
func (c *Controller) SetReplicas(ctx context.Context, topic string, replicas int) error {
	_, err := ask(ctx, c, "reassign", reassignRequest{Topic: topic, Partition: -1, Replicas: replicas}, (*Controller).reassign)
	return err
}

// Reassign moves a partition to the given nodes, online; the first is the preferred leader. It returns when that is decided.
func (c *Controller) Reassign(ctx context.Context, topic string, partition int32, nodes []int32) error {
	_, err := ask(ctx, c, "reassign", reassignRequest{Topic: topic, Partition: partition, Nodes: nodes}, (*Controller).reassign)
	return err
}

func (c *Controller) reassign(ctx context.Context, q reassignRequest) (nothing, error) {
	err := c.decide(ctx, func(ctx context.Context) error {
		t, err := c.movable(q)
		if err != nil {
			return err
		}
		if q.Partition >= int32(len(t.Partitions)) || (q.Partition < 0 && q.Nodes != nil) {
			return fmt.Errorf("%w: topic %q has partitions 0 to %d, not %d", ErrUnknownTopic, q.Topic, len(t.Partitions)-1, q.Partition)
		}
		views := c.nodeViews()
		if err := checkTarget(q.Nodes, views); err != nil {
			return err
		}
		c.mu.RLock()
		load := newPlacementLoad(c.mu.assignments()...)
		c.mu.RUnlock()
		changed := t
		for _, a := range t.Partitions {
			if q.Partition >= 0 && a.Partition != q.Partition {
				continue
			}
			target := q.Nodes
			if target == nil {
				load.add(placedOn(a), -1)
				if target, err = retarget(a, views, load, q.Replicas); err != nil {
					return fmt.Errorf("topic %q: %w", q.Topic, err)
				}
				load.add(target, 1)
			}
			if target != nil && a.Origin == nil {
				a.Origin = placedOn(a)
			}
			a.Target, a.Wanted = slices.Clone(target), 0
			changed = changed.with(a)
		}
		return c.write(ctx, topicRecord(changed, false))
	})
	c.wakeGovernor()
	return nothing{}, err
}

// movable returns a topic whose partitions users may move. How many replicas an internal one has is not for them to say.
func (c *Controller) movable(q reassignRequest) (*TopicState, error) {
	t := c.topic(q.Topic)
	if t == nil || !t.Internal || q.Topic == MetadataTopic || q.Nodes == nil {
		return c.mutable(q.Topic)
	}
	return t, nil
}

func checkTarget(target []int32, nodes []nodeView) error {
	for i, id := range target {
		ok := slices.ContainsFunc(nodes, func(n nodeView) bool { return n.ID == id && n.Mode == NodeActive })
		if !ok {
			return fmt.Errorf("%w: %d, or it is being drained", ErrUnknownNode, id)
		}
		if slices.Contains(target[:i], id) {
			return fmt.Errorf("%w: node %d is named twice", ErrInvalidConfig, id)
		}
	}
	return nil
}

type lostRequest struct {
	Shard   uint64 `json:"shard"`
	Replica uint64 `json:"replica"`
	Why     string `json:"why"`
	Stays   bool   `json:"stays,omitempty"` // it takes part until it is removed: the others could not do without it
	Lossy   bool   `json:"lossy,omitempty"` // nothing is wrong with it but that it may lack records at the end
}

// replicaLost notes that a node's replica is damaged or gone, if others have the data.
func (c *Controller) replicaLost(ctx context.Context, q lostRequest) (nothing, error) {
	if q.Lossy && !c.ledWithout(ctx, q) {
		c.noteLossy(q.Shard) // its log may be the best that there is
		return nothing{}, nil
	}
	role := RoleLost
	if q.Stays {
		role = RoleLeaving
	}
	err := c.decide(ctx, func(ctx context.Context) error {
		c.mu.RLock()
		t, a, ok := c.mu.partition(q.Shard)
		c.mu.RUnlock()
		if !ok || len(a.Replicas) < 2 {
			return nil
		}
		b, ok := a.lose(role, func(r ReplicaAssignment) bool { return r.Replica == q.Replica })
		if !ok {
			return nil
		}
		c.host.logger.Warn("a replica is lost or damaged and is replaced", "partition", fmt.Sprintf("%s-%d", t.Name, a.Partition), "node", nodeOf(q.Replica), "why", q.Why)
		return c.write(ctx, topicRecord(t.with(b), false))
	})
	c.wakeGovernor()
	return nothing{}, err
}

// ledWithout says whether a group has a leader other than a replica.
func (c *Controller) ledWithout(ctx context.Context, q lostRequest) bool {
	c.mu.RLock()
	_, a, ok := c.mu.partition(q.Shard)
	c.mu.RUnlock()
	if !ok {
		return false
	}
	g, _, err := c.groupOf(ctx, *a)
	return err == nil && g.Leader != q.Replica
}
