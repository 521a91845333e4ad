package replication

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A new group has no leader, and its replicas would wait an election timeout for one. Nobody can be deposed yet, so once its replicas run the preferred
// one campaigns at once.

const (
	kickOffTimeout = 2 * time.Second // for all replicas to run; then those that do elect somebody without waiting for the others
	kickOffPause   = 5 * time.Millisecond
)

// kickOffRequest asks which of the shards run on a node, and makes those campaign that are told to.
type kickOffRequest struct {
	Shards   []uint64 `json:"shards"`
	Campaign []uint64 `json:"campaign,omitempty"`
}

type kickOffAnswer struct {
	Running int `json:"running"`
}

func (c *Controller) answerKickOff(_ context.Context, from int32, payload []byte) ([]byte, error) {
	var q kickOffRequest
	if err := json.Unmarshal(payload, &q); err != nil {
		return nil, fmt.Errorf("replication: request of node %d: %w", from, err)
	}
	return json.Marshal(kickOffAnswer{c.runs(q)})
}

func (c *Controller) runs(q kickOffRequest) (running int) {
	for _, s := range q.Shards {
		if p := c.local(s); p != nil && p.machine.Load() != nil && !p.stopped() {
			running++
		}
	}
	for _, s := range q.Campaign {
		if p := c.local(s); p != nil && p.brandNew() {
			c.host.net.timeoutNow(s, p.spec.Replica)
		}
	}
	return running
}

// brandNew says that the replica has voted for nobody and heard of no leader since its group was made.
func (p *Partition) brandNew() bool {
	if p.r == nil || p.stopped() {
		return false
	}
	if leader, _, ok := p.host.guard.leader(p.spec.Shard); ok && leader != 0 {
		return false
	}
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	return p.r.mu.state.Vote == 0 && p.r.mu.state.Term <= genesisTerm && p.r.mu.log.LastIndex() <= genesisIndex
}

// kickOff has the groups of a topic's partitions, from one on, elect their first leaders.
func (c *Controller) kickOff(ctx context.Context, parts []PartitionAssignment) {
	ask := map[int32]*kickOffRequest{}
	for _, a := range parts {
		for i, r := range a.Replicas {
			if ask[r.Node] == nil {
				ask[r.Node] = &kickOffRequest{}
			}
			ask[r.Node].Shards = append(ask[r.Node].Shards, a.Shard)
			if i == 0 && len(a.Replicas) > 1 { // a single voter does it by itself
				ask[r.Node].Campaign = append(ask[r.Node].Campaign, a.Shard)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, kickOffTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for node, q := range ask {
		wg.Go(func() { c.awaitRunning(ctx, node, q.Shards) })
	}
	wg.Wait()
	last, end := context.WithTimeout(context.WithoutCancel(ctx), kickOffTimeout)
	defer end()
	for node, q := range ask {
		if len(q.Campaign) > 0 {
			wg.Go(func() { _, _ = c.askKickOff(last, node, kickOffRequest{Campaign: q.Campaign}) }) // or they elect somebody by themselves
		}
	}
	wg.Wait()
}

func (c *Controller) askKickOff(ctx context.Context, node int32, q kickOffRequest) (running int, err error) {
	if node == c.host.cfg.Node.ID {
		return c.runs(q), nil
	}
	var a kickOffAnswer
	err = c.host.callJSON(ctx, node, requestKickOff, q, &a)
	return a.Running, err
}

// awaitRunning waits until all of the shards run on a node, or ctx ends.
func (c *Controller) awaitRunning(ctx context.Context, node int32, shards []uint64) {
	for {
		if n, err := c.askKickOff(ctx, node, kickOffRequest{Shards: shards}); err == nil && n == len(shards) {
			return
		}
		select {
		case <-time.After(kickOffPause):
		case <-ctx.Done():
			return
		}
	}
}

// kickOffMetadata is kickOff for the metadata of a cluster that is being formed. The node with the lowest id does it.
func (c *Controller) kickOffMetadata(forming []int32) {
	if len(forming) < 2 || c.host.cfg.Node.ID != slices.Min(forming) {
		return
	}
	a := PartitionAssignment{Shard: metadataShard}
	for _, id := range slices.Sorted(slices.Values(forming)) {
		a.Replicas = append(a.Replicas, ReplicaAssignment{Node: id, Replica: replicaID(id, firstIncarnation)})
	}
	c.tasks.Go(func() { c.kickOff(c.ctx, []PartitionAssignment{a}) })
}
