package replication

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
)

// view is what the records of the metadata say: a fold over them, the same on every node that has read as far. It has no lock of its own, and
// what it hands out is never changed afterwards.
type view struct {
	topics    map[string]*TopicState
	byID      map[[16]byte]string
	byShard   map[uint64]shardRef
	deleted   map[uint64]bool // shards of deleted topics
	nodes     map[int32]NodeState
	nextShard uint64 // first shard id that is in no block
	nextBlock int64  // first producer id that is in no block
	recorded  bool   // a record says where the metadata's own replicas are
	entries   map[string]*entrySet
	starts    map[shardRef]int64 // below these records were deleted
}

// shardRef is whose shard it is.
type shardRef struct {
	topic     [16]byte
	partition int32
}

// NodeState is a node as the metadata has it.
type NodeState struct {
	ID      int32
	Dir     [16]byte // id of its directory
	Address string   // where it was last; empty for a node without a network
	Rack    string
	Mode    NodeMode
	// Endpoints are where it serves clients.
	Endpoints []Endpoint
}

func (n *NodeState) equal(o *NodeState) bool {
	return n.ID == o.ID && n.Dir == o.Dir && n.Address == o.Address && n.Rack == o.Rack && n.Mode == o.Mode && slices.Equal(n.Endpoints, o.Endpoints)
}

// NodeMode is what a node is for.
type NodeMode uint8

// The modes. Their names are in the metadata's records.
const (
	NodeActive   NodeMode = iota // it gets replicas
	NodeDraining                 // its replicas move away
	NodeRemoved                  // it belongs to the cluster no more; its directory never comes back
)

var nodeModeNames = [...]string{"active", "draining", "removed"}

// String names the mode.
func (m NodeMode) String() string { return nodeModeNames[m] }

func newView() view {
	return view{
		topics: map[string]*TopicState{}, byID: map[[16]byte]string{}, byShard: map[uint64]shardRef{}, deleted: map[uint64]bool{},
		nodes: map[int32]NodeState{}, nextShard: firstTopicShard, entries: map[string]*entrySet{},
		starts: map[shardRef]int64{},
	}
}

// apply folds one record.
func (v *view) apply(key, value []byte) error {
	var m metadataValue
	if err := json.Unmarshal(value, &m); err != nil {
		return fmt.Errorf("replication: record %q: %w", key, err)
	}
	if m.Version != metadataVersion {
		return fmt.Errorf("replication: record %q has version %d, this program knows %d: use a newer one", key, m.Version, metadataVersion)
	}
	switch m.Kind {
	case kindTopic:
		return v.applyTopic(&m)
	case kindNode:
		return v.applyNode(&m)
	case kindProducerIDs:
		v.nextBlock = max(v.nextBlock, m.Next)
		return nil
	case kindStart:
		return v.applyStart(&m)
	case kindEntry:
		v.applyEntry(&m)
		return nil
	case kindShards:
		v.nextShard = max(v.nextShard, uint64(max(m.Next, 0)))
		return nil
	}
	return fmt.Errorf("replication: record %q is of the unknown kind %q: use a newer program", key, m.Kind)
}

func (v *view) applyTopic(m *metadataValue) error {
	t := &TopicState{Name: m.Name, Internal: m.Internal, Created: m.Created, Config: m.Config}
	err := decodeID(&t.ID, m.ID)
	if err == nil {
		t.Settings, err = ParseSettings(m.Config)
	}
	for i := 0; i < len(m.Partitions) && err == nil; i++ {
		p := &m.Partitions[i]
		a := PartitionAssignment{Partition: int32(i), Shard: p.Shard, Target: p.Target, Origin: p.Origin, Wanted: p.Wanted, NextIncarnation: max(p.Next, firstIncarnation+1)}
		a.Replicas, err = decodeReplicas(p)
		if err == nil && len(a.Replicas) == 0 && !m.Deleted {
			err = fmt.Errorf("replication: partition %d has no replica", i)
		}
		t.Partitions = append(t.Partitions, a)
	}
	if err != nil {
		return fmt.Errorf("topic %q: %w", m.Name, err)
	}
	for _, p := range t.Partitions {
		v.nextShard = max(v.nextShard, p.Shard+1)
		v.byShard[p.Shard] = shardRef{t.ID, p.Partition}
		if m.Deleted {
			v.deleted[p.Shard] = true
			delete(v.byShard, p.Shard)
			delete(v.starts, shardRef{t.ID, p.Partition})
		}
	}
	if m.Deleted {
		if name, ok := v.byID[t.ID]; ok {
			delete(v.topics, name)
			delete(v.byID, t.ID)
		}
		return nil
	}
	v.recorded = v.recorded || t.Name == MetadataTopic
	v.replaceShards(t)
	v.topics[t.Name] = t
	v.byID[t.ID] = t.Name
	return nil
}

// replaceShards notes the shards that a partition had before it was recovered under another one: they are gone for good.
func (v *view) replaceShards(t *TopicState) {
	old := v.topics[t.Name]
	if old == nil || old.ID != t.ID {
		return
	}
	for i := range old.Partitions {
		if was := old.Partitions[i].Shard; i >= len(t.Partitions) || t.Partitions[i].Shard != was {
			v.deleted[was] = true
			delete(v.byShard, was)
		}
	}
}

func (v *view) applyNode(m *metadataValue) error {
	n := NodeState{ID: m.Node, Address: m.Address, Rack: m.Rack, Endpoints: m.Endpoints}
	if err := decodeID(&n.Dir, m.Dir); err != nil {
		return fmt.Errorf("node %d: %w", m.Node, err)
	}
	for i, name := range nodeModeNames {
		if name == m.Mode {
			n.Mode = NodeMode(i)
			v.nodes[n.ID] = n
			return nil
		}
	}
	return fmt.Errorf("replication: node %d is in the unknown mode %q: use a newer program", m.Node, m.Mode)
}

// topicsByName lists all topics.
func (v *view) topicsByName() []*TopicState {
	out := make([]*TopicState, 0, len(v.topics))
	for _, t := range v.topics {
		out = append(out, t)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// partition returns a shard's topic and assignment.
func (v *view) partition(shard uint64) (*TopicState, *PartitionAssignment, bool) {
	ref, ok := v.byShard[shard]
	if !ok {
		return nil, nil, false
	}
	t := v.topics[v.byID[ref.topic]]
	if t == nil || int(ref.partition) >= len(t.Partitions) {
		return nil, nil, false
	}
	return t, &t.Partitions[ref.partition], true
}

// gone says whether the records certainly took a replica away, or never gave it: then its files are nobody's.
func (v *view) gone(shard, replica uint64) bool {
	if v.deleted[shard] {
		return true
	}
	_, a, ok := v.partition(shard)
	if !ok {
		return false // not recorded yet, perhaps
	}
	for _, r := range a.Replicas {
		if r.Replica == replica {
			return false
		}
	}
	return uint32(replica>>32) < a.NextIncarnation
}

// replicasOf lists what a node has to run, by shard.
func (v *view) replicasOf(node int32) map[uint64]PartitionSpec {
	out := map[uint64]PartitionSpec{}
	for _, t := range v.topics {
		for i := range t.Partitions {
			for _, r := range t.Partitions[i].Replicas {
				if r.Node == node && r.Role != RoleLost {
					s := t.spec(i, r)
					s.start = v.starts[shardRef{t.ID, s.Partition}]
					out[s.Shard] = s
				}
			}
		}
	}
	return out
}

func (t *TopicState) spec(i int, r ReplicaAssignment) PartitionSpec {
	return PartitionSpec{
		Topic: t.Name, TopicID: t.ID, Partition: t.Partitions[i].Partition, Shard: t.Partitions[i].Shard, Replica: r.Replica,
		Internal: t.Internal, Settings: t.Settings, Learner: r.Role == RoleLearner, members: t.Partitions[i].members(),
	}
}

// members are the group's initial members by node name. It is right for a group that was just made; others have their membership in their files.
func (a *PartitionAssignment) members() map[uint64]string {
	m := make(map[uint64]string, len(a.Replicas))
	for _, r := range a.Replicas {
		if r.Role == RoleVoter {
			m[r.Replica] = nodeName(r.Node)
		}
	}
	return m
}

// with returns a copy of the topic with one partition's assignment replaced.
func (t *TopicState) with(a PartitionAssignment) *TopicState {
	c := *t
	c.Partitions = append([]PartitionAssignment(nil), t.Partitions...)
	c.Partitions[a.Partition] = a
	return &c
}

// activeNodes lists the nodes that were not removed.
func (v *view) activeNodes() []NodeState {
	var out []NodeState
	for n := range maps.Values(v.nodes) {
		if n.Mode != NodeRemoved {
			out = append(out, n)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out
}
