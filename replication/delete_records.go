package replication

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// Records that users delete: a record of the metadata says below which offset, and every replica begins there. Their segments are deleted as
// those are that retention takes.

type deleteRecordsRequest struct {
	Topic     string `json:"topic"` // its id
	Partition int32  `json:"partition"`
	Start     int64  `json:"start"`
}

// deletedWait bounds how long the other replicas are waited for.
const deletedWait = time.Second

// DeleteRecords deletes a partition's records below an offset; -1 means all that are committed. It is asked of the node that leads the partition, and returns
// the first offset that is left. Replicas that are in sync and can be reached know it by then, so that none of them, should it lead next, gives what was deleted;
// others follow as they read the metadata. ErrOffsetOutOfRange for an offset above the high watermark.
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
	c.spreadDeleted(ctx, p, q)
	return p.StartOffset(), nil
}

// spreadDeleted waits until those who may lead the partition next have read what was deleted.
func (c *Controller) spreadDeleted(ctx context.Context, p *Partition, q deleteRecordsRequest) {
	ctx, cancel := context.WithTimeout(ctx, deletedWait)
	defer cancel()
	var asked sync.WaitGroup
	for _, r := range p.Replication().Replicas {
		if !r.Voter || !r.InSync || r.Node == c.host.cfg.Node.ID || !c.host.reachable(r.Node) {
			continue
		}
		asked.Go(func() {
			if err := c.host.callJSON(ctx, r.Node, requestDeleted, q, &nothing{}); err != nil {
				c.host.logger.Debug("a replica may not know yet what was deleted", "partition", p.name(), "node", r.Node, "err", err)
			}
		})
	}
	asked.Wait()
}

// answerDeleted answers when this node has read in the metadata what was deleted, and its replica begins there.
func (c *Controller) answerDeleted(ctx context.Context, from int32, payload []byte) ([]byte, error) {
	var q deleteRecordsRequest
	ref := shardRef{}
	err := json.Unmarshal(payload, &q)
	if err == nil {
		err = decodeID(&ref.topic, q.Topic)
	}
	if err != nil {
		return nil, fmt.Errorf("replication: request of node %d: %w", from, err)
	}
	ref.partition = q.Partition
	ctx, cancel := context.WithTimeout(ctx, deletedWait)
	defer cancel()
	for {
		changed := c.Changed()
		start := c.deletedBelow(ref)
		if start >= q.Start {
			name, _ := c.name(ref.topic)
			if p := c.replica(name, ref.partition); p != nil && p.spec.TopicID == ref.topic {
				p.setFloor(start)
			}
			return mustJSON(nothing{}), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: the metadata here says nothing yet of what was deleted", ErrBusy)
		}
	}
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
