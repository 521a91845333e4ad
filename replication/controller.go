package replication

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sort"
	"sync"

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
	metadataReadSize = 1 << 20
	startParallel    = 8
)

// replicaID encodes the node and how often it has had a replica of the group: an id is never used again.
func replicaID(node int32, incarnation uint32) uint64 {
	return uint64(incarnation)<<32 | uint64(uint32(node))
}

// Controller keeps topics as records of the metadata partition and makes this node's replicas agree with them.
type Controller struct {
	host     *Host
	metadata *Partition

	admin  chan struct{}   // holds a token while one changes topics: one change at a time
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu struct {
		sync.RWMutex
		topics     map[string]*TopicState
		byID       map[[16]byte]string
		partitions map[string][]*Partition
		starting   map[[16]byte][]*Partition // replicas that run and whose topic's record does not name them yet
		gone       []*Partition              // replicas of topics whose deletion was read
		deleted    map[uint64]bool           // shards of deleted topics
		nextShard  uint64
		nextBlock  int64 // first producer id that is not in a block
	}
	view struct { // guarded by admin
		cursor *Cursor
		next   int64
		buf    []byte
		open   chan AppendResult // of a record whose fate was not waited for
		stale  bool              // a record of unknown fate may have been written
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
	c = &Controller{host: h, admin: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(h.ctx)
	c.mu.topics = make(map[string]*TopicState)
	c.mu.byID = make(map[[16]byte]string)
	c.mu.partitions = make(map[string][]*Partition)
	c.mu.starting = make(map[[16]byte][]*Partition)
	c.mu.deleted = make(map[uint64]bool)
	c.mu.nextShard = firstTopicShard
	if err := c.startMetadata(ctx); err != nil {
		c.cancel()
		return nil, err
	}
	c.view.cursor = c.metadata.NewCursor()
	for _, step := range []func(context.Context) error{c.readView, c.sweep, c.startAll} {
		if err := step(ctx); err != nil {
			c.cancel()
			c.view.cursor.Close()
			return nil, err
		}
	}
	return c, nil
}

// begin starts a change of topics: it waits for its turn and for what earlier changes left open, and brings the view up to date. The
// context that it returns ends with the controller as well; end takes and returns the change's error, which says so then.
func (c *Controller) begin(ctx context.Context) (_ context.Context, end func(error) error, err error) {
	done, err := c.host.begin()
	if err != nil {
		return nil, nil, err
	}
	merged, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(fmt.Errorf("%w: controller", ErrClosed)) })
	turn := false
	end = func(err error) error {
		if err != nil && ctx.Err() == nil && c.ctx.Err() != nil && !errors.Is(err, ErrClosed) {
			err = fmt.Errorf("%w: controller: %w", ErrClosed, err)
		}
		if turn {
			<-c.admin
		}
		stop()
		cancel(nil)
		done()
		return err
	}
	select {
	case c.admin <- struct{}{}:
		turn = true
	case <-merged.Done():
		return nil, nil, end(merged.Err())
	}
	switch {
	case c.ctx.Err() != nil:
		err = fmt.Errorf("%w: controller", ErrClosed)
	case ctx.Err() != nil:
		err = ctx.Err()
	case c.view.stale:
		err = c.catchUp(merged)
	}
	if err != nil {
		return nil, nil, end(err)
	}
	return merged, end, nil
}

func (c *Controller) startMetadata(ctx context.Context) error {
	h := c.host
	node := h.cfg.Node
	settings, err := ParseSettings(map[string]string{"retention.ms": "-1", "segment.bytes": "16777216"})
	if err != nil {
		return err
	}
	spec := PartitionSpec{
		Topic: MetadataTopic, Shard: metadataShard, Replica: replicaID(node.ID, firstIncarnation), Internal: true, Settings: settings,
	}
	if c.metadata, err = h.StartPartition(spec, !node.Formed); err != nil {
		return err
	}
	if err := c.metadata.Writable(ctx); err != nil {
		return fmt.Errorf("replication: the cluster's metadata is not available: %w", err)
	}
	if !node.Formed {
		node.Formed = true
		if err := SaveNode(h.cfg.FS, h.cfg.Dir, node); err != nil {
			return err
		}
		h.cfg.Node = node
	}
	c.mu.topics[MetadataTopic] = &TopicState{
		Name: MetadataTopic, Internal: true, Settings: settings,
		Partitions: []PartitionAssignment{{Shard: metadataShard, Replicas: []ReplicaAssignment{{Node: node.ID, Replica: spec.Replica}}}},
	}
	c.mu.partitions[MetadataTopic] = []*Partition{c.metadata}
	return nil
}

// Close ends the controller: changes under way end with an error. The host closes the partitions.
func (c *Controller) Close() {
	c.cancel()
	c.admin <- struct{}{}
	defer func() { <-c.admin }()
	c.view.cursor.Close()
}

// sweep deletes the folders of replicas whose topic was deleted, and reports those that no topic knows.
func (c *Controller) sweep(context.Context) error {
	names, err := c.host.cfg.FS.List(filepath.Join(c.host.cfg.Dir, partitionsDir))
	if err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := map[uint64]bool{}
	for _, t := range c.mu.topics {
		for _, p := range t.Partitions {
			known[p.Shard] = true
		}
	}
	for _, name := range names {
		var k segment.Key
		if n, err := fmt.Sscanf(name, "%d-%d", &k.Shard, &k.Replica); n != 2 || err != nil || known[k.Shard] {
			continue
		}
		c.mu.nextShard = max(c.mu.nextShard, k.Shard+1) // never hand out an id whose files are there
		if c.mu.deleted[k.Shard] && name == filepath.Base(c.host.replicaDir(k)) {
			if err := c.host.DeleteReplicaDir(k); err != nil {
				return err
			}
			continue
		}
		c.host.logger.Warn("a replica's folder belongs to no topic; it is left alone", "folder", name)
		c.host.emit(Event{Kind: EventOrphan, Detail: name})
	}
	return nil
}

// startAll starts every replica of this node, several at a time.
func (c *Controller) startAll(ctx context.Context) error {
	var all []*TopicState
	for _, t := range c.mu.topics {
		if !t.Internal || t.Name != MetadataTopic {
			all = append(all, t)
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	var started []*Partition
	for _, t := range all {
		parts, err := c.startReplicas(ctx, t, 0)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.mu.partitions[t.Name] = parts
		c.mu.Unlock()
		started = append(started, parts...)
	}
	return settle(ctx, started)
}

// settle waits until every replica that is its group's only voter leads, or cannot: then its high watermark covers all that was ever
// acknowledged.
func settle(ctx context.Context, parts []*Partition) error {
	for _, p := range parts {
		if p.r == nil || len(p.r.record().Membership.Addresses) != 1 {
			continue
		}
		if err := p.Writable(ctx); err != nil && ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// startReplicas starts the replicas of t from a partition on. Their files are there: they are made before the topic is recorded.
func (c *Controller) startReplicas(ctx context.Context, t *TopicState, from int) ([]*Partition, error) {
	parts := make([]*Partition, len(t.Partitions)-from)
	err := inParallel(ctx, len(parts), func(i int) (err error) {
		parts[i], err = c.host.StartPartition(c.spec(t, from+i), false)
		return err
	})
	return parts, err
}

func (c *Controller) spec(t *TopicState, i int) PartitionSpec {
	a := t.Partitions[i]
	return PartitionSpec{
		Topic: t.Name, TopicID: t.ID, Partition: a.Partition, Shard: a.Shard, Replica: a.Replicas[0].Replica,
		Internal: t.Internal, Settings: t.Settings,
	}
}

// inParallel runs f for 0 to n-1, some at a time, and returns the first error.
func inParallel(ctx context.Context, n int, f func(i int) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	slots := make(chan struct{}, startParallel)
	for i := range max(n, 0) {
		mu.Lock()
		stop := first != nil || ctx.Err() != nil
		mu.Unlock()
		if stop {
			break
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := f(i); err != nil {
				mu.Lock()
				first = cmpErr(first, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return cmpErr(first, ctx.Err())
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// Topics lists the topics by name.
func (c *Controller) Topics() []TopicState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]TopicState, 0, len(c.mu.topics))
	for _, t := range c.mu.topics {
		out = append(out, *t)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
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

// Partition returns this node's replica of a partition.
func (c *Controller) Partition(topic string, n int32) (*Partition, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	parts, ok := c.mu.partitions[topic]
	if !ok {
		return nil, fmt.Errorf("%w: topic %q: create it first", ErrUnknownTopic, topic)
	}
	if n < 0 || int(n) >= len(parts) {
		return nil, fmt.Errorf("%w: topic %q has partitions 0 to %d, not %d", ErrUnknownTopic, topic, len(parts)-1, n)
	}
	return parts[n], nil
}

// NewProducerID gives an id that no other producer of the cluster has or ever had, and its first epoch.
func (c *Controller) NewProducerID(ctx context.Context) (id int64, epoch int16, err error) {
	if id, ok := c.takeProducerID(); ok {
		return id, 0, nil
	}
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = end(err) }()
	for {
		if id, ok := c.takeProducerID(); ok { // another call brought a block while this one waited
			return id, 0, nil
		}
		c.mu.RLock()
		first := c.mu.nextBlock
		c.mu.RUnlock()
		if err := c.write(ctx, producerIDsRecord(first+producerIDBlock)); err != nil {
			return 0, 0, err
		}
		c.ids.Lock()
		c.ids.next, c.ids.end = first, first+producerIDBlock
		c.ids.Unlock()
	}
}

// takeProducerID takes an id from the block at hand.
func (c *Controller) takeProducerID() (id int64, ok bool) {
	c.ids.Lock()
	defer c.ids.Unlock()
	if c.ids.next == c.ids.end {
		return 0, false
	}
	c.ids.next++
	return c.ids.next - 1, true
}
