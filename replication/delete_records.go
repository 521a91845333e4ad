package replication

import (
	"context"
	"encoding/hex"
	"fmt"
)

// Records that users delete: a record of the metadata says below which offset, and every replica begins there. Their segments are deleted as
// those are that retention takes.

type deleteRecordsRequest struct {
	Topic     string `json:"topic"` // its id
	Partition int32  `json:"partition"`
	Start     int64  `json:"start"`
}

// DeleteRecords deletes a partition's records below an offset; -1 means all that are committed. It is asked of the node that leads the partition, and returns
// the first offset that is left. Other replicas follow as they read the metadata. ErrOffsetOutOfRange for an offset above the high watermark.
func (c *Controller) DeleteRecords(ctx context.Context, topic string, partition int32, before int64) (start int64, err error) {
	p, err := c.Partition(topic, partition)
	if err != nil {
		return 0, err
	}
	if p.spec.Internal {
		return 0, fmt.Errorf("%w: topic %q is internal", ErrInvalidTopic, topic)
	}
	return c.deleteBelow(ctx, p, before)
}

// TrimInternal is DeleteRecords for internal topics, whose owner knows what is needed no more.
func (c *Controller) TrimInternal(ctx context.Context, topic string, partition int32, before int64) (start int64, err error) {
	p, err := c.Partition(topic, partition)
	if err != nil {
		return 0, err
	}
	if !p.spec.Internal || topic == MetadataTopic {
		return 0, fmt.Errorf("%w: topic %q is not one that is trimmed", ErrInvalidTopic, topic)
	}
	return c.deleteBelow(ctx, p, before)
}

func (c *Controller) deleteBelow(ctx context.Context, p *Partition, before int64) (start int64, err error) {
	if p.Epoch() == 0 {
		return 0, p.notLeading()
	}
	hw := p.HighWatermark()
	if before == -1 {
		before = hw
	}
	if before < 0 || before > hw {
		return 0, fmt.Errorf("%w: %s: delete below %d, the high watermark is %d", ErrOffsetOutOfRange, p.name(), before, hw)
	}
	if before <= p.StartOffset() {
		return p.StartOffset(), nil
	}
	if p.settings.Load().Fsync == FsyncInterval { // what comes after a loss must not be taken for what was deleted
		if p.r.syncLog(); p.r.latched.Load() {
			return 0, fmt.Errorf("%w: %s", ErrFailed, p.name())
		}
	}
	q := deleteRecordsRequest{hex.EncodeToString(p.spec.TopicID[:]), p.spec.Partition, before}
	if _, err := askAgain(ctx, c, "delete-records", q, (*Controller).deleteRecords); err != nil {
		return 0, err
	}
	p.setFloor(c.deletedBelow(shardRef{p.spec.TopicID, p.spec.Partition}))
	return p.StartOffset(), nil
}

func (c *Controller) deleteRecords(ctx context.Context, q deleteRecordsRequest) (nothing, error) {
	return nothing{}, c.decide(ctx, func(ctx context.Context) error {
		ref := shardRef{partition: q.Partition}
		if err := decodeID(&ref.topic, q.Topic); err != nil {
			return err
		}
		name, _ := c.name(ref.topic)
		t := c.topic(name)
		if t == nil || q.Partition < 0 || int(q.Partition) >= len(t.Partitions) {
			return fmt.Errorf("%w: no topic has the id %s and a partition %d", ErrUnknownTopic, q.Topic, q.Partition)
		}
		if c.deletedBelow(ref) >= q.Start {
			return nil
		}
		return c.write(ctx, deletedRecord(ref, q.Start))
	})
}

// deletedBelow is the offset below which a partition's records were deleted, 0 when none were.
func (c *Controller) deletedBelow(ref shardRef) int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.starts[ref]
}

func deletedRecord(ref shardRef, start int64) metadataRecord {
	id := hex.EncodeToString(ref.topic[:])
	return metadataRecord{key: fmt.Sprintf("%s/%s/%d", kindStart, id, ref.partition), val: metadataValue{
		Version: metadataVersion, Kind: kindStart, ID: id, Partition: ref.partition, Start: start,
	}}
}

func (v *view) applyStart(m *metadataValue) error {
	ref := shardRef{partition: m.Partition}
	if err := decodeID(&ref.topic, m.ID); err != nil {
		return fmt.Errorf("start of partition %d: %w", m.Partition, err)
	}
	if _, ok := v.byID[ref.topic]; ok { // not deleted meanwhile
		v.starts[ref] = m.Start
	}
	return nil
}

// setFloor says below which offset records were deleted.
func (p *Partition) setFloor(start int64) {
	if p.floor.Swap(start) == start {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signalLocked()
}
