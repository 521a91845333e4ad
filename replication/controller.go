package replication

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet/segment"
)

// MetadataTopic is the internal topic whose one partition holds the cluster's metadata.
const MetadataTopic = "__cluster_metadata"

const (
	metadataShard    = 1
	firstTopicShard  = 2
	firstIncarnation = 1

	// MaxPartitions bounds the partitions of one topic.
	MaxPartitions = 10_000

	producerIDBlock  = 1000 // producer ids taken from the metadata at once
	shardBlock       = 1000 // shard ids taken by a controller at once
	metadataReadSize = 1 << 20
	startParallel    = 8
	controllerPause  = 20 * time.Millisecond  // before a change is tried again elsewhere
	agentRetry       = 250 * time.Millisecond // before what failed is tried again
)

// replicaID encodes the node and how often the group has got a replica: an id is never used again.
func replicaID(node int32, incarnation uint32) uint64 {
	return uint64(incarnation)<<32 | uint64(uint32(node))
}

// Controller folds the records of the metadata partition and makes this node's replicas agree with them. On the node that leads the
// partition it also takes the decisions, which are records. Other nodes' changes are forwarded to that one.
type Controller struct {
	host     *Host
	metadata atomic.Pointer[Partition] // this node's replica; another one after it was replaced
	moved    chan struct{}             // told when it moves; has room for one
	router   *Router

	version  atomic.Uint64 // changes with every change that Changed tells of
	patience time.Duration // of askAgain for one answer

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu struct {
		sync.RWMutex
		view
		next       int64                 // offset of the first record that is not in the view
		broken     error                 // why the view cannot follow any more
		partitions map[uint64]*Partition // this node's replicas of topics, by shard
		settled    int64                 // the replicas agree with the view as it was at this offset
		troubled   bool                  // but for some that could not be started or removed
		changed    chan struct{}         // closed and replaced when one of these changes
	}
	reader struct {
		sync.Mutex
		cursor  *Cursor
		unwatch func() // ends what tells moved
		buf     []byte
	}
	agent struct { // locked while the replicas are made to agree
		sync.Mutex
		swept   int                  // of so many shards of deleted topics nothing is left
		idle    map[segment.Key]bool // replicas that have a folder and do not run: the records may take them away yet
		current bool                 // the view has been all that was committed
	}
	governWake chan struct{}
	governed   struct {
		sync.Mutex
		learners   map[uint64]bool // of the metadata, as Raft had them when last asked
		recovering map[uint64]bool // shards
		renewed    time.Time       // when the others were last asked about this node's replica of the metadata
		lossy      map[uint64]bool // shards without a leader, of which a replica may have lost its tail
	}
	admin chan struct{} // holds a token while a decision is taken: one at a time
	lead  struct {      // guarded by admin
		open      chan AppendResult // of a record whose fate was not waited for
		shard     uint64            // next shard id of the block at hand
		shardsEnd uint64
	}
	ids struct {
		sync.Mutex
		next, end int64
	}
}

// OpenController starts the metadata partition, reads it, and starts every replica that it assigns to this node.
func OpenController(ctx context.Context, h *Host) (c *Controller, err error) {
	end, err := h.begin()
	if err != nil {
		return nil, err
	}
	defer end()
	c = &Controller{patience: askPatience, host: h, admin: make(chan struct{}, 1), governWake: make(chan struct{}, 1), moved: make(chan struct{}, 1)}
	c.agent.idle = map[segment.Key]bool{}
	c.ctx, c.cancel = context.WithCancel(h.ctx)
	c.mu.view = newView()
	c.mu.partitions = make(map[uint64]*Partition)
	c.mu.changed = make(chan struct{})
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if err := c.startMetadata(ctx); err != nil {
		return c, err
	}
	c.readFrom(c.meta())
	c.serve()
	c.router = OpenRouter(c) // before this node can lead anything
	c.kickOffMetadata(h.cfg.Node.Forming)
	// What is known here runs at once, so that groups come up although the metadata may lack a majority still.
	start := func(context.Context) error {
		c.tasks.Go(c.follow)
		c.tasks.Go(c.govern)
		return nil
	}
	for _, step := range []func(context.Context) error{c.read, c.agree, c.fresh, c.agreeCurrent, c.recordSurvivor, c.sweep, start, c.register, c.settleAll} {
		if err := step(ctx); err != nil {
			return c, err
		}
	}
	return c, nil
}

// startMetadata starts this node's replica of the metadata. A node that forms its cluster makes it; one that joined has it already.
func (c *Controller) startMetadata(ctx context.Context) error {
	h := c.host
	node := h.cfg.Node
	replica, found, err := h.metadataReplica()
	if err != nil {
		return err
	}
	if !found {
		replica = replicaID(node.ID, firstIncarnation)
	}
	spec := metadataSpec(replica)
	spec.members = map[uint64]string{}
	for _, id := range node.Forming {
		spec.members[replicaID(id, firstIncarnation)] = nodeName(id)
	}
	if len(spec.members) == 0 {
		spec.members[replica] = h.name
	}
	p, err := h.StartPartition(spec, !node.Formed)
	if err != nil {
		return err
	}
	c.metadata.Store(p)
	if state, cause := c.meta().State(); state == StateQuarantined {
		return fmt.Errorf("%w: %w", errMetadataDamaged, cause)
	}
	c.mu.topics[MetadataTopic] = metadataTopic(spec.members)
	c.mu.byID[[16]byte{}] = MetadataTopic
	c.mu.byShard[metadataShard] = shardRef{}
	if node.Formed {
		return nil
	}
	if len(node.Forming) < 2 { // a single voter can say at once that the cluster exists
		if err := c.meta().Writable(ctx); err != nil {
			return fmt.Errorf("replication: the cluster's metadata is not available: %w", err)
		}
	}
	node.Formed = true
	if err := SaveNode(h.cfg.FS, h.cfg.Dir, node); err != nil {
		return err
	}
	h.cfg.Node.Formed = true // the rest others read meanwhile
	return nil
}

func metadataSettings() Settings {
	s, _ := ParseSettings(metadataConfig()) // constants that are valid
	return s
}

func metadataConfig() map[string]string {
	return map[string]string{"retention.ms": "-1", "segment.bytes": "16777216", "max.message.bytes": "8388608"}
}

func metadataSpec(replica uint64) PartitionSpec {
	return PartitionSpec{Topic: MetadataTopic, Shard: metadataShard, Replica: replica, Internal: true, Settings: metadataSettings()}
}

// metadataTopic is the metadata itself as a topic, before a record says where its replicas are.
func metadataTopic(members map[uint64]string) *TopicState {
	a := PartitionAssignment{Shard: metadataShard, NextIncarnation: firstIncarnation + 1}
	for r := range members {
		a.Replicas = append(a.Replicas, ReplicaAssignment{Node: nodeOf(r), Replica: r})
	}
	sortReplicas(a.Replicas)
	return &TopicState{Name: MetadataTopic, Internal: true, Config: metadataConfig(), Settings: metadataSettings(), Partitions: []PartitionAssignment{a}}
}

// Close ends the controller: changes under way end with an error. The host closes the partitions.
func (c *Controller) Close() {
	c.cancel()
	if c.router != nil {
		c.router.Close()
	}
	c.tasks.Wait()
	c.admin <- struct{}{}
	defer func() { <-c.admin }()
	c.unserve()
	c.reader.Lock()
	defer c.reader.Unlock()
	if c.reader.cursor != nil {
		c.reader.unwatch()
		c.reader.cursor.Close()
	}
}

// Router gives the routes to all partitions. It is closed with the controller, or before.
func (c *Controller) Router() *Router { return c.router }

// changedLocked wakes those who wait for the view or the replicas.
func (c *Controller) changedLocked() {
	c.version.Add(1)
	close(c.mu.changed)
	c.mu.changed = make(chan struct{})
}

// Changed returns a channel that is closed with the next change of topics, nodes or this node's replicas.
func (c *Controller) Changed() <-chan struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.changed
}

// Version is another number after every change that Changed tells of.
func (c *Controller) Version() uint64 { return c.version.Load() }

// MetadataLeader is the node that leads the metadata, and so decides, and its epoch, as far as known here; 0 and 0 while nobody is known to.
func (c *Controller) MetadataLeader() (node int32, epoch int32) {
	replica, term, ok := c.host.guard.leader(metadataShard)
	if !ok || replica == 0 || term > maxEpoch {
		return 0, 0
	}
	return nodeOf(replica), int32(term)
}

// await waits until holds, which is called under the lock, says so.
func (c *Controller) await(ctx context.Context, holds func() bool) error {
	for {
		c.mu.RLock()
		ok, changed := holds(), c.mu.changed
		c.mu.RUnlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ctx.Done():
			return fmt.Errorf("%w: controller", ErrClosed)
		}
	}
}

// Topics lists the topics by name.
func (c *Controller) Topics() []TopicState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]TopicState, 0, len(c.mu.topics))
	for _, t := range c.mu.topicsByName() {
		out = append(out, *t)
	}
	return out
}

// Topic returns one topic.
func (c *Controller) Topic(name string) (TopicState, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t, ok := c.mu.topics[name]
	if !ok {
		return TopicState{}, false
	}
	return *t, true
}

// TopicByID returns one topic.
func (c *Controller) TopicByID(id [16]byte) (TopicState, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t, ok := c.mu.topics[c.mu.byID[id]]
	if !ok {
		return TopicState{}, false
	}
	return *t, true
}

// Nodes lists the nodes of the cluster by id, without those that were removed.
func (c *Controller) Nodes() []NodeState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.activeNodes()
}

// everyNode lists all nodes that the cluster ever had.
func (c *Controller) everyNode() []NodeState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Values(c.mu.nodes))
}

// Partition returns this node's replica of a partition.
func (c *Controller) Partition(topic string, n int32) (*Partition, error) {
	_, a, err := c.assignment(topic, n)
	if err != nil {
		return nil, err
	}
	if p := c.local(a.Shard); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%w: %s-%d has no replica on this node", ErrNotLeader, topic, n)
}

// assignment says where a partition's replicas are, and its topic's id.
func (c *Controller) assignment(topic string, n int32) (id [16]byte, a PartitionAssignment, err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t, ok := c.mu.topics[topic]
	if !ok {
		return id, a, fmt.Errorf("%w: topic %q: create it first", ErrUnknownTopic, topic)
	}
	if n < 0 || int(n) >= len(t.Partitions) {
		return id, a, fmt.Errorf("%w: topic %q has partitions 0 to %d, not %d", ErrUnknownTopic, topic, len(t.Partitions)-1, n)
	}
	return t.ID, t.Partitions[n], nil
}

// replica returns this node's replica of a partition, nil when it has none.
func (c *Controller) replica(topic string, n int32) *Partition {
	_, a, err := c.assignment(topic, n)
	if err != nil {
		return nil
	}
	return c.local(a.Shard)
}

// name returns the name of the topic with the id.
func (c *Controller) name(id [16]byte) (string, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	name, ok := c.mu.byID[id]
	return name, ok
}

// nodes lists the ids of the cluster's nodes.
func (c *Controller) nodes() (ids []int32) {
	for _, n := range c.Nodes() {
		ids = append(ids, n.ID)
	}
	return ids
}

// local returns this node's replica of a shard, nil when it has none.
func (c *Controller) local(shard uint64) *Partition {
	if shard == metadataShard {
		return c.meta()
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.partitions[shard]
}
