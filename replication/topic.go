package replication

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// CreateTopic makes a topic. When it returns, its partitions exist and take records.
func (c *Controller) CreateTopic(ctx context.Context, spec TopicSpec) (_ TopicState, err error) {
	settings, err := ParseSettings(spec.Config)
	if err != nil {
		return TopicState{}, err
	}
	if spec.Partitions < 1 || spec.Partitions > MaxPartitions {
		return TopicState{}, fmt.Errorf("%w: %d for topic %q: 1 to %d are possible", ErrInvalidPartitions, spec.Partitions, spec.Name, MaxPartitions)
	}
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return TopicState{}, err
	}
	defer func() { err = end(err) }()
	if err := c.checkName(spec.Name); err != nil {
		return TopicState{}, err
	}
	t := TopicState{
		Name: spec.Name, Config: maps.Clone(spec.Config), Settings: settings, Created: c.host.now().UnixMilli(),
	}
	if _, err := rand.Read(t.ID[:]); err != nil {
		return TopicState{}, fmt.Errorf("replication: making a topic id: %w", err)
	}
	if err := c.extend(ctx, &t, spec.Partitions); err != nil {
		return TopicState{}, err
	}
	return t, nil
}

// extend gives the topic its partitions up to total: it makes their files, starts their replicas, and records the topic when all of them take
// records. A crash leaves the topic as it was, with folders that belong to nothing, or as it is to be.
func (c *Controller) extend(ctx context.Context, t *TopicState, total int) error {
	old := len(t.Partitions)
	if err := c.addReplicas(ctx, t, total); err != nil {
		return err
	}
	parts, err := c.startReplicas(ctx, t, old)
	for i := 0; i < len(parts) && err == nil; i++ {
		err = parts[i].Writable(ctx)
	}
	if err != nil {
		c.discard(t, old, parts)
		return err
	}
	c.mu.Lock()
	c.mu.starting[t.ID] = parts // the view takes them over together with the record
	c.mu.Unlock()
	err = c.write(ctx, topicRecord(t, false))
	if err != nil && !c.view.stale { // certainly not recorded
		c.mu.Lock()
		delete(c.mu.starting, t.ID)
		c.mu.Unlock()
		c.discard(t, old, parts)
	}
	return err
}

// discard stops and deletes replicas that no record names.
func (c *Controller) discard(t *TopicState, from int, parts []*Partition) {
	ctx, cancel := context.WithTimeout(c.host.ctx, snapshotTimeout)
	defer cancel()
	for i := from; i < len(t.Partitions); i++ {
		var err error
		if p := parts[i-from]; p != nil {
			err = c.host.RemovePartition(ctx, p)
		} else {
			s := c.spec(t, i)
			err = c.host.DeleteReplicaDir(s.key())
		}
		if err != nil {
			c.host.logger.Warn("files of a partition that was not created stay behind", "topic", t.Name, "partition", i, "err", err)
		}
	}
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
			Partition: int32(i), Shard: c.mu.nextShard, Replicas: []ReplicaAssignment{{Node: node, Replica: replicaID(node, firstIncarnation)}}, NextIncarnation: firstIncarnation + 1,
		})
		c.mu.nextShard++
	}
	c.mu.Unlock()
	err := inParallel(ctx, total-old, func(i int) error { return c.host.PrepareReplica(c.spec(t, old+i)) })
	if err != nil {
		c.discard(t, old, make([]*Partition, total-old))
	}
	return err
}

// DeleteTopic deletes a topic and its files. When files cannot be deleted it returns an error although the topic is gone: the next open
// deletes them.
func (c *Controller) DeleteTopic(ctx context.Context, name string) (err error) {
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = end(err) }()
	t, err := c.mutable(name)
	if err != nil {
		return err
	}
	if err := c.write(ctx, topicRecord(t, true)); err != nil {
		return err
	}
	return c.removeGone(ctx)
}

// removeGone removes the replicas of topics that are deleted: all of them, whatever becomes of one.
func (c *Controller) removeGone(ctx context.Context) error {
	c.mu.Lock()
	gone := c.mu.gone
	c.mu.gone = nil
	c.mu.Unlock()
	errs := make([]error, len(gone))
	_ = inParallel(context.WithoutCancel(ctx), len(gone), func(i int) error {
		errs[i] = c.host.RemovePartition(ctx, gone[i])
		return nil
	})
	return errors.Join(errs...)
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
func (c *Controller) AlterTopic(ctx context.Context, name string, set map[string]string, unset []string) (err error) {
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = end(err) }()
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
	// A log that is recorded as fsync commit must not have a tail that was written under interval, so the stricter policy goes first.
	if old.Settings.Fsync == FsyncInterval && t.Settings.Fsync == FsyncCommit {
		strict := old.Settings
		strict.Fsync = FsyncCommit
		c.apportion(name, strict)
	}
	err = c.write(ctx, topicRecord(&t, false))
	if now := c.topic(name); now != nil {
		c.apportion(name, now.Settings)
	}
	return err
}

// apportion gives the topic's partitions their settings.
func (c *Controller) apportion(name string, s Settings) {
	c.mu.RLock()
	parts := c.mu.partitions[name]
	c.mu.RUnlock()
	for _, p := range parts {
		if *p.settings.Load() != s {
			p.SetSettings(s)
		}
	}
}

// AddPartitions extends a topic to total partitions. Keys map to other partitions from then on.
func (c *Controller) AddPartitions(ctx context.Context, name string, total int) (err error) {
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = end(err) }()
	old, err := c.mutable(name)
	if err != nil {
		return err
	}
	if total <= len(old.Partitions) || total > MaxPartitions {
		return fmt.Errorf("%w: topic %q has %d, asked for are %d: give the new total, at most %d", ErrInvalidPartitions, name, len(old.Partitions), total, MaxPartitions)
	}
	t := *old
	return c.extend(ctx, &t, total)
}
