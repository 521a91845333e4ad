package replication

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// createRequest asks for a topic.
type createRequest struct {
	Spec TopicSpec `json:"spec"`
}

// CreateTopic makes a topic. When it returns, its partitions exist; those that have a replica here are led by somebody. Names that are the library's own
// are refused unless the topic is internal.
func (c *Controller) CreateTopic(ctx context.Context, spec TopicSpec) (TopicState, error) {
	if spec.Partitions == 0 {
		spec.Partitions = len(spec.Assignments)
	}
	if err := spec.check(); err != nil {
		return TopicState{}, err
	}
	t, err := ask(ctx, c, "create-topic", createRequest{spec}, (*Controller).createTopic)
	if err != nil || spec.ValidateOnly {
		return t, err
	}
	return t, c.awaitTopic(ctx, &t, 0)
}

// check finds what is wrong with a topic whatever the cluster has.
func (s *TopicSpec) check() error {
	if err := checkTopicName(s.Name, s.Internal); err != nil {
		return err
	}
	if _, err := ParseSettings(s.Config); err != nil {
		return err
	}
	if s.Partitions < 1 || s.Partitions > MaxPartitions {
		return fmt.Errorf("%w: %d for topic %q: 1 to %d are possible", ErrInvalidPartitions, s.Partitions, s.Name, MaxPartitions)
	}
	if s.Replicas < 0 || s.Replicas > ReplicasMax {
		return fmt.Errorf("%w: topic %q with %d replicas: 1 to %d are possible", ErrInvalidPartitions, s.Name, s.Replicas, ReplicasMax)
	}
	if s.Assignments == nil {
		return nil
	}
	if len(s.Assignments) != s.Partitions {
		return fmt.Errorf("%w: topic %q has %d partitions and nodes for %d", ErrInvalidAssignment, s.Name, s.Partitions, len(s.Assignments))
	}
	for i, nodes := range s.Assignments {
		n := len(nodes)
		if n < 1 || n > ReplicasMax || n != len(s.Assignments[0]) || (s.Replicas > 0 && n != s.Replicas) {
			return fmt.Errorf("%w: partition %d of topic %q has %d nodes: all need the same number, 1 to %d", ErrInvalidAssignment, i, s.Name, n, ReplicasMax)
		}
	}
	return nil
}

// awaitTopic waits until this node's replicas of a topic, from a partition on, run and have a leader.
func (c *Controller) awaitTopic(ctx context.Context, t *TopicState, from int) error {
	here := c.host.cfg.Node.ID
	for i := from; i < len(t.Partitions); i++ {
		shard := t.Partitions[i].Shard
		if !slices.ContainsFunc(t.Partitions[i].Replicas, func(r ReplicaAssignment) bool { return r.Node == here }) {
			continue
		}
		var p *Partition
		err := c.await(ctx, func() bool {
			p = c.mu.partitions[shard]
			return p != nil || c.mu.deleted[shard] || c.mu.broken != nil
		})
		if err == nil && p != nil {
			err = p.led(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) createTopic(ctx context.Context, q createRequest) (t TopicState, err error) {
	err = c.decide(ctx, func(ctx context.Context) error {
		t, err = c.newTopic(ctx, q.Spec)
		return err
	})
	if err == nil && !q.Spec.ValidateOnly {
		c.kickOff(ctx, t.Partitions)
	}
	return t, err
}

// newTopic makes a topic, in a decision.
func (c *Controller) newTopic(ctx context.Context, s TopicSpec) (t TopicState, err error) {
	if err := c.checkName(s.Name); err != nil {
		return t, err
	}
	t = TopicState{Name: s.Name, Internal: s.Internal, Config: maps.Clone(s.Config), Created: c.host.now().UnixMilli()}
	if t.Settings, err = ParseSettings(t.Config); err != nil {
		return t, err
	}
	if _, err := rand.Read(t.ID[:]); err != nil {
		return t, fmt.Errorf("replication: making a topic id: %w", err)
	}
	places, err := c.placesFor(&s)
	if err != nil {
		return t, fmt.Errorf("topic %q: %w", t.Name, err)
	}
	if s.ValidateOnly {
		t.add(places, 0)
		return t, nil
	}
	return t, c.extend(ctx, &t, places)
}

// placesFor are the nodes of a new topic's partitions.
func (c *Controller) placesFor(s *TopicSpec) ([][]int32, error) {
	if s.Assignments == nil {
		return c.place(s.Partitions, s.Replicas)
	}
	nodes := c.nodeViews()
	for i, on := range s.Assignments {
		if err := checkTarget(on, nodes); err != nil {
			return nil, fmt.Errorf("%w: partition %d: %w", ErrInvalidAssignment, i, err)
		}
	}
	return s.Assignments, nil
}

// add gives the topic partitions on the nodes.
func (t *TopicState) add(places [][]int32, shard uint64) {
	old := len(t.Partitions)
	t.Partitions = slices.Clone(t.Partitions)
	for i, nodes := range places {
		a := PartitionAssignment{Partition: int32(old + i), Shard: shard + uint64(i), NextIncarnation: firstIncarnation + 1}
		for _, n := range nodes {
			a.Replicas = append(a.Replicas, ReplicaAssignment{Node: n, Replica: replicaID(n, firstIncarnation)})
		}
		t.Partitions = append(t.Partitions, a)
	}
}

// extend gives the topic more partitions: it makes their files, here and elsewhere, and records the topic. A crash leaves the topic
// as it was, with folders that belong to nothing, or as it is to be.
func (c *Controller) extend(ctx context.Context, t *TopicState, places [][]int32) error {
	old := len(t.Partitions)
	shards, err := c.takeShards(ctx, len(places))
	if err != nil {
		return err
	}
	t.add(places, shards)
	err = c.prepareAll(ctx, t, old)
	if err == nil {
		err = c.write(ctx, topicRecord(t, false))
	}
	if err != nil && c.lead.open == nil && !isAmbiguous(err) { // certainly not recorded
		c.discardAll(t, old)
	}
	return err
}

// takeShards takes n shard ids that nobody else has or ever had, from a block that is a record.
func (c *Controller) takeShards(ctx context.Context, n int) (first uint64, err error) {
	if c.lead.shard+uint64(n) > c.lead.shardsEnd {
		c.mu.RLock()
		first := c.mu.nextShard
		c.mu.RUnlock()
		end := first + max(shardBlock, uint64(n))
		if err := c.write(ctx, shardsRecord(end)); err != nil {
			return 0, err
		}
		c.lead.shard, c.lead.shardsEnd = first, end
	}
	first = c.lead.shard
	c.lead.shard += uint64(n)
	return first, nil
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

// topicRequest names a topic.
type topicRequest struct {
	Name string `json:"name"`
}

type nothing struct{}

// DeleteTopic deletes a topic. When it returns, this node's files of it are gone; other nodes delete theirs by themselves. When files cannot be
// deleted it returns an error although the topic is gone: it is tried again.
func (c *Controller) DeleteTopic(ctx context.Context, name string) error {
	if _, err := ask(ctx, c, "delete-topic", topicRequest{name}, (*Controller).deleteTopic); err != nil {
		return err
	}
	return c.agree(ctx)
}

func (c *Controller) deleteTopic(ctx context.Context, q topicRequest) (nothing, error) {
	return nothing{}, c.decide(ctx, func(ctx context.Context) error {
		t, err := c.mutable(q.Name)
		if err != nil {
			return err
		}
		return c.write(ctx, topicRecord(t, true))
	})
}

// mutable returns a topic that users may change.
func (c *Controller) mutable(name string) (*TopicState, error) {
	t := c.topic(name)
	if t == nil {
		return nil, fmt.Errorf("%w: topic %q", ErrUnknownTopic, name)
	}
	if t.Internal {
		return nil, fmt.Errorf("%w: topic %q is internal", ErrInvalidTopic, name)
	}
	return t, nil
}

type alterRequest struct {
	Name  string            `json:"name"`
	Set   map[string]string `json:"set,omitempty"`
	Unset []string          `json:"unset,omitempty"`
}

// AlterTopic changes settings; those in unset get their default back.
func (c *Controller) AlterTopic(ctx context.Context, name string, set map[string]string, unset []string) error {
	if _, err := ask(ctx, c, "alter-topic", alterRequest{name, set, unset}, (*Controller).alterTopic); err != nil {
		return err
	}
	return c.agree(ctx)
}

func (c *Controller) alterTopic(ctx context.Context, q alterRequest) (nothing, error) {
	return nothing{}, c.decide(ctx, func(ctx context.Context) error {
		old, err := c.mutable(q.Name)
		if err != nil {
			return err
		}
		t := *old
		t.Config = maps.Clone(old.Config)
		if t.Config == nil {
			t.Config = make(map[string]string)
		}
		for _, k := range q.Unset {
			delete(t.Config, k)
		}
		maps.Copy(t.Config, q.Set)
		if t.Settings, err = ParseSettings(t.Config); err != nil {
			return err
		}
		// A log that is recorded as fsync commit must not have a tail that was written under interval, so the stricter policy goes first.
		if old.Settings.Fsync == FsyncInterval && t.Settings.Fsync == FsyncCommit {
			strict := old.Settings
			strict.Fsync = FsyncCommit
			c.apportion(&t, strict)
		}
		err = c.write(ctx, topicRecord(&t, false))
		if now := c.topic(q.Name); now != nil && err != nil {
			c.apportion(now, now.Settings)
		}
		return err
	})
}

// apportion gives this node's replicas of a topic their settings.
func (c *Controller) apportion(t *TopicState, s Settings) {
	for i := range t.Partitions {
		if p := c.local(t.Partitions[i].Shard); p != nil && *p.settings.Load() != s {
			p.SetSettings(s)
		}
	}
}

// MorePartitions says how to extend a topic.
type MorePartitions struct {
	Topic string `json:"name"`
	// Total is how many partitions there shall be.
	Total int `json:"total"`
	// Assignments are the nodes of each new partition, the preferred leader first. Nil: they are chosen.
	Assignments [][]int32 `json:"assignments,omitempty"`
	// ValidateOnly says that everything is checked and nothing is made.
	ValidateOnly bool `json:"validate,omitempty"`
}

// AddPartitions extends a topic to total partitions. Keys map to other partitions from then on.
func (c *Controller) AddPartitions(ctx context.Context, name string, total int) error {
	return c.ExtendTopic(ctx, MorePartitions{Topic: name, Total: total})
}

// ExtendTopic is AddPartitions on given nodes.
func (c *Controller) ExtendTopic(ctx context.Context, more MorePartitions) error {
	old, err := ask(ctx, c, "add-partitions", more, (*Controller).addPartitions)
	if err != nil || more.ValidateOnly {
		return err
	}
	t, ok := c.Topic(more.Topic)
	if !ok {
		return fmt.Errorf("%w: topic %q was deleted", ErrUnknownTopic, more.Topic)
	}
	return c.awaitTopic(ctx, &t, old)
}

func (c *Controller) addPartitions(ctx context.Context, q MorePartitions) (old int, err error) {
	var more TopicState
	err = c.decide(ctx, func(ctx context.Context) error {
		t, err := c.mutable(q.Topic)
		if err != nil {
			return err
		}
		old = len(t.Partitions)
		if q.Total <= old || q.Total > MaxPartitions {
			return fmt.Errorf("%w: topic %q has %d, asked for are %d: give the new total, at most %d", ErrInvalidPartitions, q.Topic, old, q.Total, MaxPartitions)
		}
		more = *t
		spec := TopicSpec{Name: q.Topic, Partitions: q.Total - old, Replicas: t.replicas(), Assignments: q.Assignments}
		if err := spec.check(); err != nil {
			return err
		}
		places, err := c.placesFor(&spec)
		if err != nil {
			return fmt.Errorf("topic %q: %w", q.Topic, err)
		}
		if q.ValidateOnly {
			return nil
		}
		return c.extend(ctx, &more, places)
	})
	if err == nil && !q.ValidateOnly {
		c.kickOff(ctx, more.Partitions[old:])
	}
	return old, err
}

// replicas is the topic's replication factor: that of its first partition when its changes are through.
func (t *TopicState) replicas() int {
	a := &t.Partitions[0]
	if a.Target != nil {
		return len(a.Target)
	}
	n := 0
	for _, r := range a.Replicas {
		if r.Role == RoleVoter {
			n++
		}
	}
	return max(n, 1)
}

// NewProducerID gives an id that no other producer of the cluster has or ever had, and its first epoch.
func (c *Controller) NewProducerID(ctx context.Context) (id int64, epoch int16, err error) {
	for {
		c.ids.Lock()
		if c.ids.next < c.ids.end {
			id = c.ids.next
			c.ids.next++
			c.ids.Unlock()
			return id, 0, nil
		}
		c.ids.Unlock()
		first, err := askAgain(ctx, c, "producer-ids", nothing{}, (*Controller).producerIDs)
		if err != nil {
			return 0, 0, err
		}
		c.ids.Lock()
		if c.ids.next == c.ids.end { // not brought by another call meanwhile
			c.ids.next, c.ids.end = first, first+producerIDBlock
		}
		c.ids.Unlock()
	}
}

// producerIDs gives a node a block of ids.
func (c *Controller) producerIDs(ctx context.Context, _ nothing) (first int64, err error) {
	err = c.decide(ctx, func(ctx context.Context) error {
		c.mu.RLock()
		first = c.mu.nextBlock
		c.mu.RUnlock()
		return c.write(ctx, producerIDsRecord(first+producerIDBlock))
	})
	return first, err
}
