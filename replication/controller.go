package replication

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/billetlog/billet/internal/batch"
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

// TopicSpec is a topic to be made.
type TopicSpec struct {
	Name       string
	Partitions int
	Config     map[string]string
}

// TopicState is a topic as the metadata has it. It is not changed once handed out.
type TopicState struct {
	Name       string
	ID         [16]byte
	Internal   bool
	Config     map[string]string // what was set; the rest has its default
	Settings   Settings
	Created    int64 // Unix milliseconds
	Partitions []PartitionAssignment
}

// PartitionAssignment says where a partition's replicas are.
type PartitionAssignment struct {
	Partition int32
	Shard     uint64
	Replicas  []ReplicaAssignment
}

// ReplicaAssignment is one replica.
type ReplicaAssignment struct {
	Node    int32
	Replica uint64
}

// Controller keeps topics as records of the metadata partition and makes this node's replicas agree with them.
type Controller struct {
	host     *Host
	metadata *Partition

	admin sync.Mutex // one change at a time

	mu struct {
		sync.RWMutex
		topics     map[string]*TopicState
		byID       map[[16]byte]string
		partitions map[string][]*Partition
		deleted    map[uint64]bool // shards of deleted topics
		nextShard  uint64
		nextBlock  int64 // first producer id that is not in a block
	}
	view struct { // guarded by admin
		cursor *Cursor
		next   int64
		buf    []byte
	}
	ids struct {
		sync.Mutex
		next, end int64
	}
}

// OpenController starts the metadata partition, reads it, and starts every replica that it assigns to this node.
func OpenController(ctx context.Context, h *Host) (*Controller, error) {
	c := &Controller{host: h}
	c.mu.topics = make(map[string]*TopicState)
	c.mu.byID = make(map[[16]byte]string)
	c.mu.partitions = make(map[string][]*Partition)
	c.mu.deleted = make(map[uint64]bool)
	c.mu.nextShard = firstTopicShard
	if err := c.startMetadata(ctx); err != nil {
		return nil, err
	}
	c.admin.Lock()
	defer c.admin.Unlock()
	c.view.cursor = c.metadata.NewCursor()
	if err := c.readView(); err != nil {
		return nil, err
	}
	if err := c.sweep(); err != nil {
		return nil, err
	}
	return c, c.startAll(ctx)
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
		Partitions: []PartitionAssignment{{Shard: metadataShard, Replicas: []ReplicaAssignment{{node.ID, spec.Replica}}}},
	}
	c.mu.partitions[MetadataTopic] = []*Partition{c.metadata}
	return nil
}

// Close ends the controller; the host closes the partitions.
func (c *Controller) Close() {
	c.admin.Lock()
	defer c.admin.Unlock()
	c.view.cursor.Close()
}

// sweep deletes the folders of replicas whose topic was deleted, and reports those that no topic knows.
func (c *Controller) sweep() error {
	names, err := c.host.cfg.FS.List(filepath.Join(c.host.cfg.Dir, partitionsDir))
	if err != nil {
		return fmt.Errorf("replication: %w", err)
	}
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
		if c.mu.deleted[k.Shard] {
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
	for _, t := range all {
		if err := c.startTopic(ctx, t); err != nil {
			return err
		}
	}
	for _, t := range all {
		if err := c.settle(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until every replica of t that is its group's only voter leads, or cannot: then its high watermark covers all that was ever
// acknowledged.
func (c *Controller) settle(ctx context.Context, t *TopicState) error {
	c.mu.RLock()
	parts := c.mu.partitions[t.Name]
	c.mu.RUnlock()
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

// startTopic starts the replicas of t that do not run yet. Their files are there: they were made before the topic was recorded.
func (c *Controller) startTopic(ctx context.Context, t *TopicState) error {
	c.mu.RLock()
	running := c.mu.partitions[t.Name]
	c.mu.RUnlock()
	parts := make([]*Partition, len(t.Partitions))
	copy(parts, running)
	err := inParallel(ctx, len(t.Partitions)-len(running), func(i int) (err error) {
		i += len(running)
		parts[i], err = c.host.StartPartition(c.spec(t, i), false)
		return err
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.partitions[t.Name] = parts
	return nil
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

// CreateTopic makes a topic. When it returns, its partitions exist and take records.
func (c *Controller) CreateTopic(ctx context.Context, spec TopicSpec) (TopicState, error) {
	settings, err := ParseSettings(spec.Config)
	if err != nil {
		return TopicState{}, err
	}
	if spec.Partitions < 1 || spec.Partitions > MaxPartitions {
		return TopicState{}, fmt.Errorf("%w: %d for topic %q: 1 to %d are possible", ErrInvalidPartitions, spec.Partitions, spec.Name, MaxPartitions)
	}
	c.admin.Lock()
	defer c.admin.Unlock()
	if err := c.checkName(spec.Name); err != nil {
		return TopicState{}, err
	}
	t := TopicState{
		Name: spec.Name, Config: maps.Clone(spec.Config), Settings: settings, Created: c.host.now().UnixMilli(),
	}
	if _, err := rand.Read(t.ID[:]); err != nil {
		return TopicState{}, fmt.Errorf("replication: making a topic id: %w", err)
	}
	if err := c.addReplicas(ctx, &t, spec.Partitions); err != nil {
		return TopicState{}, err
	}
	if err := c.write(ctx, topicRecord(&t, false)); err != nil {
		return TopicState{}, err
	}
	made := c.topic(t.Name)
	if err := c.startTopic(ctx, made); err != nil {
		return TopicState{}, err
	}
	return *made, c.settle(ctx, made)
}

func (c *Controller) topic(name string) *TopicState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.topics[name]
}

// checkName refuses a name that is taken, or that differs from one only in '.' and '_': metric names fold the two.
func (c *Controller) checkName(name string) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	folded := strings.ReplaceAll(name, ".", "_")
	for other := range c.mu.topics {
		if other == name {
			return fmt.Errorf("%w: %q", ErrTopicExists, name)
		}
		if strings.ReplaceAll(other, ".", "_") == folded {
			return fmt.Errorf("%w: %q differs from %q only in '.' and '_'", ErrTopicExists, name, other)
		}
	}
	return nil
}

// addReplicas extends the topic to total partitions and makes their files, before anything is recorded: then a topic that is recorded has
// its files, and files that are missing were lost.
func (c *Controller) addReplicas(ctx context.Context, t *TopicState, total int) error {
	c.mu.Lock()
	old := len(t.Partitions)
	t.Partitions = slices.Clone(t.Partitions)
	for i := old; i < total; i++ {
		node := c.host.cfg.Node.ID
		t.Partitions = append(t.Partitions, PartitionAssignment{
			Partition: int32(i), Shard: c.mu.nextShard, Replicas: []ReplicaAssignment{{node, replicaID(node, firstIncarnation)}},
		})
		c.mu.nextShard++
	}
	c.mu.Unlock()
	err := inParallel(ctx, total-old, func(i int) error { return c.host.PrepareReplica(c.spec(t, old+i)) })
	if err == nil {
		return nil
	}
	for i := old; i < total; i++ {
		s := c.spec(t, i)
		if e := c.host.DeleteReplicaDir(s.key()); e != nil && !errors.Is(e, fs.ErrNotExist) {
			c.host.logger.Warn("files of a partition that was not created stay behind", "err", e)
		}
	}
	return err
}

// DeleteTopic deletes a topic and its files.
func (c *Controller) DeleteTopic(ctx context.Context, name string) error {
	c.admin.Lock()
	defer c.admin.Unlock()
	t, err := c.mutable(name)
	if err != nil {
		return err
	}
	c.mu.RLock()
	parts := c.mu.partitions[name]
	c.mu.RUnlock()
	if err := c.write(ctx, topicRecord(t, true)); err != nil {
		return err
	}
	return inParallel(ctx, len(parts), func(i int) error { return c.host.RemovePartition(ctx, parts[i]) })
}

// mutable returns a topic that users may change.
func (c *Controller) mutable(name string) (*TopicState, error) {
	t := c.topic(name)
	if t == nil {
		return nil, fmt.Errorf("%w: topic %q", ErrUnknownTopic, name)
	}
	if t.Internal {
		return nil, fmt.Errorf("%w: topic %q is internal", ErrInvalidConfig, name)
	}
	return t, nil
}

// AlterTopic changes settings; those in unset get their default back.
func (c *Controller) AlterTopic(ctx context.Context, name string, set map[string]string, unset []string) error {
	c.admin.Lock()
	defer c.admin.Unlock()
	old, err := c.mutable(name)
	if err != nil {
		return err
	}
	t := *old
	t.Config = maps.Clone(old.Config)
	if t.Config == nil {
		t.Config = make(map[string]string)
	}
	for _, k := range unset {
		delete(t.Config, k)
	}
	maps.Copy(t.Config, set)
	if t.Settings, err = ParseSettings(t.Config); err != nil {
		return err
	}
	if err := c.write(ctx, topicRecord(&t, false)); err != nil {
		return err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, p := range c.mu.partitions[name] {
		p.SetSettings(t.Settings)
	}
	return nil
}

// AddPartitions extends a topic to total partitions. Keys map to other partitions from then on.
func (c *Controller) AddPartitions(ctx context.Context, name string, total int) error {
	c.admin.Lock()
	defer c.admin.Unlock()
	old, err := c.mutable(name)
	if err != nil {
		return err
	}
	if total <= len(old.Partitions) || total > MaxPartitions {
		return fmt.Errorf("%w: topic %q has %d, asked for are %d: give the new total, at most %d", ErrInvalidPartitions, name, len(old.Partitions), total, MaxPartitions)
	}
	t := *old
	if err := c.addReplicas(ctx, &t, total); err != nil {
		return err
	}
	if err := c.write(ctx, topicRecord(&t, false)); err != nil {
		return err
	}
	grown := c.topic(name)
	if err := c.startTopic(ctx, grown); err != nil {
		return err
	}
	return c.settle(ctx, grown)
}

// NewProducerID gives an id that no other producer of the cluster has or ever had, and its first epoch.
func (c *Controller) NewProducerID(ctx context.Context) (id int64, epoch int16, err error) {
	c.ids.Lock()
	defer c.ids.Unlock()
	if c.ids.next == c.ids.end {
		c.admin.Lock()
		defer c.admin.Unlock()
		c.mu.RLock()
		first := c.mu.nextBlock
		c.mu.RUnlock()
		if err := c.write(ctx, producerIDsRecord(first+producerIDBlock)); err != nil {
			return 0, 0, err
		}
		c.ids.next, c.ids.end = first, first+producerIDBlock
	}
	c.ids.next++
	return c.ids.next - 1, 0, nil
}

// write appends a record to the metadata, waits until it is committed, and brings the view up to it.
func (c *Controller) write(ctx context.Context, r metadataRecord) error {
	key, value, err := r.encode()
	if err != nil {
		return err
	}
	for {
		if err := c.metadata.Writable(ctx); err != nil {
			return err
		}
		b, err := c.buildRecord(key, value)
		if err != nil {
			return err
		}
		done := make(chan AppendResult, 1)
		c.metadata.Append(b, AppendOptions{Acks: AcksAll}, func(res AppendResult) { done <- res })
		select {
		case res := <-done:
			if errors.Is(res.Err, ErrNotLeader) || errors.Is(res.Err, ErrBusy) {
				continue
			}
			if res.Err != nil {
				return fmt.Errorf("writing the cluster's metadata: %w", res.Err)
			}
			return c.readView()
		case <-ctx.Done():
			return fmt.Errorf("%w: writing the cluster's metadata: %w", ErrAmbiguous, ctx.Err())
		}
	}
}

func (c *Controller) buildRecord(key, value []byte) (batch.Batch, error) {
	var b batch.Builder
	b.Reset(batch.BuilderOptions{})
	b.Append(c.host.now().UnixMilli(), key, value, nil)
	return b.Finish()
}

// readView applies what is committed and not yet read.
func (c *Controller) readView() error {
	var r batch.Reader
	for c.view.next < c.metadata.HighWatermark() {
		buf, err := c.view.cursor.Read(c.view.buf[:0], c.view.next, metadataReadSize)
		if err != nil {
			return err
		}
		c.view.buf = buf
		for len(buf) > 0 {
			b, rest, err := batch.Split(buf, len(buf))
			if err == nil {
				err = b.CheckCRC()
			}
			if err == nil {
				err = r.Reset(b, maxMessageBytesMax)
			}
			if err != nil {
				return fmt.Errorf("%w: cluster metadata at offset %d: %w", segment.ErrCorrupt, c.view.next, err)
			}
			var rec batch.Record
			for r.Next(&rec) {
				if err := c.apply(rec.Key, rec.Value); err != nil {
					return fmt.Errorf("cluster metadata at offset %d: %w", rec.Offset, err)
				}
			}
			if err := r.Err(); err != nil {
				return fmt.Errorf("%w: cluster metadata at offset %d: %w", segment.ErrCorrupt, c.view.next, err)
			}
			buf, c.view.next = rest, b.NextOffset()
		}
	}
	return nil
}
