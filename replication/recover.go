package replication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A partition that has lost the majority of its voters for good cannot elect a leader: what they acknowledged is not known any more. Somebody has
// to decide to go on with what one replica has. Its log becomes that of a new group, under a new shard, and one record of the metadata puts the new
// group in the place of the old one. Every replica of the old one that comes back is deleted by that record.

// surveyTimeout bounds the question to one node.
const surveyTimeout = 3 * time.Second

// Recovered says what came of the recovery of a partition.
type Recovered struct {
	Node        int32 // whose log was taken
	StartOffset int64 // the records kept are those from here
	EndOffset   int64 // to here
	// HighWatermark is the highest that a replica knew of which answered. Records from EndOffset to it were committed and are lost.
	HighWatermark int64
	// Unreachable are the nodes with a replica that did not answer. What was acknowledged after EndOffset and is on them alone is lost.
	Unreachable []int32
}

type recoverRequest struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// RecoverPartition makes a partition that has lost its majority for good work again, from the longest log among the nodes that can be reached. It
// refuses with ErrMajority as long as a leader exists, or the voters that can be reached could elect one. All that the chosen log holds counts as
// committed from then on; what it lacks is lost, and so is what a voter that cannot be reached has acknowledged meanwhile: make sure that those are
// down. It can be called again after any error.
func (c *Controller) RecoverPartition(ctx context.Context, topic string, partition int32) (Recovered, error) {
	return ask(ctx, c, "recover-partition", recoverRequest{topic, partition}, (*Controller).recoverPartition)
}

func (c *Controller) recoverPartition(ctx context.Context, q recoverRequest) (Recovered, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	_, a, err := c.assignment(q.Topic, q.Partition)
	if err != nil {
		return Recovered{}, err
	}
	t := c.topic(q.Topic)
	if t == nil {
		return Recovered{}, fmt.Errorf("%w: topic %q", ErrUnknownTopic, q.Topic)
	}
	if a.Shard == metadataShard {
		return Recovered{}, fmt.Errorf("%w: the metadata is recovered offline, see RecoverCluster", ErrInvalidConfig)
	}
	if !c.beginRecovery(a.Shard) {
		return Recovered{}, fmt.Errorf("%w: %s-%d is being recovered already", ErrBusy, t.Name, a.Partition)
	}
	defer c.endRecovery(a.Shard)
	s := c.survey(ctx, a)
	if err := s.refusal(); err != nil {
		return Recovered{}, fmt.Errorf("%s-%d: %w", t.Name, a.Partition, err)
	}
	return c.rebuild(ctx, t, a, s)
}

func (c *Controller) beginRecovery(shard uint64) bool {
	c.governed.Lock()
	defer c.governed.Unlock()
	if c.governed.recovering[shard] {
		return false
	}
	if c.governed.recovering == nil {
		c.governed.recovering = map[uint64]bool{}
	}
	c.governed.recovering[shard] = true
	return true
}

func (c *Controller) endRecovery(shard uint64) {
	c.governed.Lock()
	defer c.governed.Unlock()
	delete(c.governed.recovering, shard)
}

// replicaAnswer is what a node says of its replica of a shard.
type replicaAnswer struct {
	Replica   uint64   `json:"replica"` // 0: it has none
	Leads     bool     `json:"leads,omitempty"`
	Intact    bool     `json:"intact,omitempty"`   // it takes part in its group, or would
	Readable  bool     `json:"readable,omitempty"` // no damage is known in its log
	Lossy     bool     `json:"lossy,omitempty"`    // it was taken out since its tail may be lost, and for nothing else
	Term      uint64   `json:"term,omitempty"`     // Raft's, whatever was stored in it
	LastTerm  uint64   `json:"last_term,omitempty"`
	LastIndex uint64   `json:"last_index,omitempty"`
	Start     int64    `json:"start,omitempty"`
	End       int64    `json:"end,omitempty"`
	HW        int64    `json:"hw,omitempty"`
	Voters    []uint64 `json:"voters,omitempty"` // of its group, as far as it knows

	node int32
}

// survey is what is known of a partition that has no leader.
type survey struct {
	assignment  PartitionAssignment
	answers     []replicaAnswer
	unreachable []int32
}

// survey asks all nodes that have a replica.
func (c *Controller) survey(ctx context.Context, a PartitionAssignment) (s survey) {
	s.assignment = a
	for _, r := range a.Replicas {
		ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
		ans, err := c.askReplica(ctx, r.Node, a.Shard)
		cancel()
		switch {
		case err != nil:
			s.unreachable = append(s.unreachable, r.Node)
		case ans.Replica == r.Replica:
			ans.node = r.Node
			s.answers = append(s.answers, ans)
		}
	}
	return s
}

func (c *Controller) askReplica(ctx context.Context, node int32, shard uint64) (a replicaAnswer, err error) {
	if node == c.host.cfg.Node.ID {
		return c.tellReplica(shard), nil
	}
	return a, c.host.callJSON(ctx, node, requestReplica, groupRequest{shard}, &a)
}

// refusal is why the partition is not recovered: the group works, or may still.
func (s *survey) refusal() error {
	for _, a := range s.answers {
		if a.Leads {
			return fmt.Errorf("%w: node %d leads it", ErrMajority, a.node)
		}
	}
	for _, a := range s.answers {
		n := 0
		for _, id := range a.Voters {
			if slices.ContainsFunc(s.answers, func(o replicaAnswer) bool { return o.Replica == id && o.Intact }) {
				n++
			}
		}
		if len(a.Voters) > 0 && n >= quorum(len(a.Voters)) {
			return fmt.Errorf("%w: %d of %d voters can be reached and will elect a leader", ErrMajority, n, len(a.Voters))
		}
	}
	if _, ok := s.longest(); !ok {
		return fmt.Errorf("%w: none of its replicas that can be reached has a whole log (not reached: nodes %v)", ErrNotEnoughReplicas, s.unreachable)
	}
	return nil
}

// longest is the replica whose log Raft would rather have lead.
func (s *survey) longest() (best replicaAnswer, ok bool) {
	for _, a := range s.answers {
		if !a.Readable || a.LastIndex < genesisIndex {
			continue
		}
		if !ok || a.LastTerm > best.LastTerm || (a.LastTerm == best.LastTerm && a.LastIndex > best.LastIndex) {
			best, ok = a, true
		}
	}
	return best, ok
}

// allLossy says whether the group cannot work for no other reason than that too many of its machines went down at once under fsync interval, with
// every voter's log at hand.
func (s *survey) allLossy() bool {
	best, ok := s.longest()
	if !ok || len(s.unreachable) > 0 || len(best.Voters) == 0 {
		return false
	}
	for _, id := range best.Voters {
		if !slices.ContainsFunc(s.answers, func(o replicaAnswer) bool { return o.Replica == id && o.Readable && (o.Intact || o.Lossy) }) {
			return false
		}
	}
	return true
}

func (s *survey) recovered() Recovered {
	best, _ := s.longest()
	out := Recovered{Node: best.node, StartOffset: best.Start, EndOffset: best.End, Unreachable: s.unreachable}
	for _, a := range s.answers {
		out.HighWatermark = max(out.HighWatermark, a.HW)
	}
	return out
}

// rebuild makes the new group and records it. A crash before the record leaves a folder that belongs to nothing, which the next attempt deletes.
func (c *Controller) rebuild(ctx context.Context, t *TopicState, a PartitionAssignment, s survey) (Recovered, error) {
	best, _ := s.longest()
	q := rebuildRequest{Topic: t.Name, Shard: a.Shard, Replica: best.Replica, LastIndex: best.LastIndex, LastTerm: best.LastTerm, Term: best.Term}
	for _, o := range s.answers {
		q.Term = max(q.Term, o.Term)
	}
	q.NewReplica = replicaID(best.node, a.NextIncarnation)
	err := c.decide(ctx, func(ctx context.Context) (err error) {
		_, q.Epoch, _ = c.host.guard.leader(metadataShard)
		q.NewShard, err = c.takeShards(ctx, 1)
		return err
	})
	if err == nil {
		err = c.askRebuild(ctx, best.node, q)
	}
	if err != nil {
		return Recovered{}, err
	}
	err = c.decide(ctx, func(ctx context.Context) error { return c.recordRebuilt(ctx, a, q, best.node) })
	if err != nil {
		if !isAmbiguous(err) && c.ctx.Err() == nil {
			q.Discard = true
			if err := c.askRebuild(ctx, best.node, q); err != nil {
				c.host.logger.Warn("files of a partition that was not recovered stay behind", "topic", t.Name, "partition", a.Partition, "err", err)
			}
		}
		return Recovered{}, err
	}
	c.wakeGovernor()
	out := s.recovered()
	e := Event{Kind: EventRecovered, Topic: t.Name, Partition: a.Partition, Offset: out.EndOffset}
	e.Detail = fmt.Sprintf("from node %d; what was acknowledged after the offset is lost", out.Node)
	if lost := out.HighWatermark - out.EndOffset; lost > 0 {
		e.Detail += fmt.Sprintf(", %d records for certain", lost)
	}
	c.host.logger.Warn("a partition was recovered without a majority", "topic", t.Name, "partition", a.Partition, "node", out.Node,
		"end", out.EndOffset, "high watermark", out.HighWatermark, "unreachable", out.Unreachable)
	c.host.emit(e)
	return out, nil
}

// recordRebuilt puts the new group in the place of the old one, unless the partition changed or came back meanwhile.
func (c *Controller) recordRebuilt(ctx context.Context, old PartitionAssignment, q rebuildRequest, node int32) error {
	c.mu.RLock()
	t, now, ok := c.mu.partition(old.Shard)
	same := ok && now.equal(old)
	load := newPlacementLoad(c.mu.assignments()...)
	c.mu.RUnlock()
	if !same {
		return fmt.Errorf("%w: partition %d of %q changed meanwhile", ErrBusy, old.Partition, q.Topic)
	}
	s := c.survey(ctx, old)
	if err := s.refusal(); err != nil {
		return err
	}
	a := PartitionAssignment{Partition: old.Partition, Shard: q.NewShard, NextIncarnation: old.NextIncarnation + 1, Target: placedOn(old)}
	a.Replicas = []ReplicaAssignment{{Node: node, Replica: q.NewReplica}}
	alive := slices.DeleteFunc(c.nodeViews(), func(n nodeView) bool { return !n.takes() })
	if target, err := retarget(a, alive, load, min(len(a.Target), len(alive))); err == nil {
		a.Target = target
	} else {
		a.Target = []int32{node}
	}
	if n := max(old.Wanted, len(placedOn(old))); len(a.Target) < n {
		a.Wanted = n
	}
	records := []metadataRecord{topicRecord(t.with(a), false)}
	ref := shardRef{t.ID, old.Partition}
	if best, _ := s.longest(); c.deletedBelow(ref) > best.End { // what is written from now on was not deleted
		records = append(records, deletedRecord(ref, best.End))
	}
	return c.write(ctx, records...)
}

func (c *Controller) askRebuild(ctx context.Context, node int32, q rebuildRequest) error {
	if node == c.host.cfg.Node.ID {
		return c.rebuildReplica(ctx, &q)
	}
	return c.orderFiles(ctx, node, requestRebuild, q)
}

func (c *Controller) answerReplica(_ context.Context, _ int32, payload []byte) ([]byte, error) {
	var q groupRequest
	if err := json.Unmarshal(payload, &q); err != nil {
		return nil, fmt.Errorf("replication: request: %w", err)
	}
	return json.Marshal(c.tellReplica(q.Shard))
}

func (c *Controller) answerRebuild(ctx context.Context, _ int32, payload []byte) ([]byte, error) {
	var q rebuildRequest
	if err := json.Unmarshal(payload, &q); err != nil {
		return nil, fmt.Errorf("replication: request: %w", err)
	}
	return carriedOut(c.rebuildReplica(ctx, &q))
}

// noteLossy has the governor look at a group without a leader, of which a replica may have lost its tail.
func (c *Controller) noteLossy(shard uint64) {
	c.governed.Lock()
	if c.governed.lossy == nil {
		c.governed.lossy = map[uint64]bool{}
	}
	c.governed.lossy[shard] = true
	c.governed.Unlock()
	c.wakeGovernor()
}

// recoverLossy recovers groups whose machines all went down under fsync interval: their topics admit the loss. It runs on the governor's goroutine
// and leaves the work to others.
func (c *Controller) recoverLossy(ctx context.Context) {
	c.governed.Lock()
	shards := c.governed.lossy
	c.governed.lossy = nil
	c.governed.Unlock()
	for shard := range shards {
		c.mu.RLock()
		t, a, ok := c.mu.partition(shard)
		c.mu.RUnlock()
		if !ok || t.Internal || t.Settings.Fsync != FsyncInterval || !c.beginRecovery(shard) {
			continue
		}
		group := *a
		c.tasks.Go(func() {
			defer c.endRecovery(shard)
			s := c.survey(ctx, group)
			if s.refusal() != nil || !s.allLossy() {
				return
			}
			if _, err := c.rebuild(ctx, t, group, s); err != nil && ctx.Err() == nil && !errors.Is(err, ErrMajority) {
				c.host.logger.Warn("a partition whose machines went down together was not recovered yet", "topic", t.Name, "partition", group.Partition, "err", err)
			}
		})
	}
}
