package replication

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// The files of a new partition's replicas are made before it is recorded: then files that are missing were lost.

// prepareRequest asks a node to make, or to delete again, the files of replicas of a topic that is not recorded yet.
type prepareRequest struct {
	Epoch      uint64              `json:"epoch"` // of the controller
	Topic      string              `json:"topic"`
	ID         string              `json:"id"`
	Config     map[string]string   `json:"config,omitempty"`
	Partitions []metadataPartition `json:"partitions"`
	First      int32               `json:"first"` // number of the first partition
	Discard    bool                `json:"discard,omitempty"`
}

func isAmbiguous(err error) bool { return errors.Is(err, ErrAmbiguous) }

// prepareAll makes the files of the topic's partitions, from one on, on all their nodes.
func (c *Controller) prepareAll(ctx context.Context, t *TopicState, from int) error {
	return c.onNodes(ctx, t, from, false)
}

// discardAll deletes what prepareAll made, where it can be reached. What stays behind is reported when its node opens.
func (c *Controller) discardAll(t *TopicState, from int) {
	ctx, cancel := context.WithTimeout(c.host.ctx, snapshotTimeout)
	defer cancel()
	if err := c.onNodes(ctx, t, from, true); err != nil {
		c.host.logger.Warn("files of partitions that were not created stay behind", "topic", t.Name, "err", err)
	}
}

func (c *Controller) onNodes(ctx context.Context, t *TopicState, from int, discard bool) error {
	q := prepareRequest{Topic: t.Name, ID: hex.EncodeToString(t.ID[:]), Config: t.Config, First: int32(from), Discard: discard}
	_, q.Epoch, _ = c.host.guard.leader(metadataShard)
	q.Partitions = topicRecord(t, false).val.Partitions[from:]
	nodes := map[int32]bool{}
	for _, a := range t.Partitions[from:] {
		for _, r := range a.Replicas {
			nodes[r.Node] = true
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for n := range nodes {
		wg.Go(func() {
			err := c.askPrepare(ctx, n, q)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *Controller) askPrepare(ctx context.Context, node int32, q prepareRequest) error {
	if node == c.host.cfg.Node.ID {
		return c.prepare(ctx, &q)
	}
	return c.orderFiles(ctx, node, requestPrepare, q)
}

func (c *Controller) answerPrepare(ctx context.Context, from int32, payload []byte) ([]byte, error) {
	var q prepareRequest
	if err := json.Unmarshal(payload, &q); err != nil {
		return nil, fmt.Errorf("replication: request of node %d: %w", from, err)
	}
	return carriedOut(c.prepare(ctx, &q))
}

// prepare makes or deletes the files of this node's replicas in q. What a record has named, or what runs, is never touched: a request may
// come late, from a controller that is none any more.
func (c *Controller) prepare(ctx context.Context, q *prepareRequest) error {
	if _, term, ok := c.host.guard.leader(metadataShard); ok && q.Epoch < term {
		return fmt.Errorf("%w: a request of the controller of epoch %d, it is %d", ErrNotLeader, q.Epoch, term)
	}
	t := TopicState{Name: q.Topic}
	err := decodeID(&t.ID, q.ID)
	if err == nil {
		t.Settings, err = ParseSettings(q.Config)
	}
	var specs []PartitionSpec
	for i := 0; i < len(q.Partitions) && err == nil; i++ {
		a := PartitionAssignment{Partition: q.First + int32(i), Shard: q.Partitions[i].Shard}
		a.Replicas, err = decodeReplicas(&q.Partitions[i])
		t.Partitions = append(t.Partitions, a)
		for _, r := range a.Replicas {
			if r.Node == c.host.cfg.Node.ID {
				specs = append(specs, t.spec(i, r))
			}
		}
	}
	if err != nil {
		return err
	}
	return inParallel(ctx, len(specs), func(i int) error { return c.prepareOne(specs[i], q.Discard) })
}

func (c *Controller) prepareOne(s PartitionSpec, discard bool) error {
	c.mu.RLock()
	_, recorded := c.mu.byShard[s.Shard]
	recorded = recorded || c.mu.deleted[s.Shard]
	c.mu.RUnlock()
	if recorded || c.host.claimed(s.Shard) != nil {
		return fmt.Errorf("%w: shard %d of %s-%d is in use", ErrTopicExists, s.Shard, s.Topic, s.Partition)
	}
	if discard {
		return c.host.DeleteReplicaDir(s.key())
	}
	// Ids are handed out once, so what is there is not what an earlier attempt left.
	if _, err := c.host.cfg.FS.Stat(c.host.replicaDir(s.key())); err == nil {
		return fmt.Errorf("%w: %s holds files already: move them away", ErrForeignDir, c.host.replicaDir(s.key()))
	}
	return c.host.PrepareReplica(s)
}
