package broker

import (
	"context"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/transport/kafka"
)

// partition is this node's replica of a partition.
type partition struct {
	*replication.Partition
	broker *Broker
}

// Partition returns this node's replica of a partition. One that knows of no leader is none:
// its client would wait for records that are elsewhere.
func (b *Broker) Partition(topic string, number int32) (kafka.Partition, error) {
	if hidden(topic) {
		return nil, kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic %q", topic)
	}
	p, err := b.controller.Partition(topic, number)
	if err == nil && p.Epoch() == 0 && p.Replication().Leader == 0 {
		return nil, kerr.Errorf(kerr.NOT_LEADER_OR_FOLLOWER, "node %d knows nobody who leads %s-%d", b.opts.Self, topic, number)
	}
	if err == nil {
		return partition{p, b}, nil
	}
	if t, ok := b.controller.Topic(topic); ok && number >= 0 && int(number) < len(t.Partitions) {
		return nil, kerr.Errorf(kerr.NOT_LEADER_OR_FOLLOWER, "%s-%d has no replica on node %d", topic, number, b.opts.Self)
	}
	return nil, kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition %d of topic %q", number, topic)
}

// Internal says that clients do not write to it.
func (p partition) Internal() bool { return p.Spec().Internal }

// Offsets tells where the replica stands.
func (p partition) Offsets() kafka.Offsets {
	o := kafka.Offsets{Epoch: p.Epoch(), Start: p.StartOffset()}
	o.HighWatermark = max(p.HighWatermark(), o.Start)
	o.LastStable, o.End = o.HighWatermark, max(p.EndOffset(), o.HighWatermark)
	o.Leading = o.Epoch > 0
	if !o.Leading {
		o.Epoch = p.Replication().Epoch
	}
	return o
}

// PreferredReplica is the node that a client in the rack had better read from.
func (p partition) PreferredReplica(rack string) int32 {
	racks := map[int32]string{}
	for _, n := range p.broker.controller.Nodes() {
		racks[n.ID] = n.Rack
	}
	if racks[p.broker.opts.Self] == rack {
		return noNode
	}
	for _, r := range p.Replication().Replicas {
		if r.Voter && r.InSync && racks[r.Node] == rack && p.broker.node.Reachable(r.Node) {
			return r.Node
		}
	}
	return noNode
}

// noNode stands for a node that is not there.
const noNode = -1

// Check refuses a batch that may not be appended.
func (p partition) Check(b batch.Batch) error { return wireError(p.Partition.Check(b)) }

// Append stores a batch.
func (p partition) Append(b batch.Batch, acks int16, done func(kafka.Appended)) {
	p.Partition.Append(b, replication.AppendOptions{Acks: p.waitFor(acks)}, func(r replication.AppendResult) {
		done(kafka.Appended{Offset: r.Offset, Timestamp: r.Timestamp, Err: wireError(r.Err)})
	})
}

// waitFor is what an append waits for. Clients find what they have written at once in
// Kafka, whatever they wait for: so it is waited for here, where that waits for no other
// node. That of an append without acknowledgement is for the end of the connection that
// an error means.
func (p partition) waitFor(acks int16) replication.Acks {
	switch {
	case p.Alone():
		return replication.AcksAll
	case acks == int16(replication.AcksNone):
		return replication.AcksLeader
	}
	return replication.Acks(acks)
}

// NewCursor makes a reader.
func (p partition) NewCursor() kafka.Cursor { return cursor{p.Partition.NewCursor()} }

// OffsetForTime finds the first committed record whose timestamp is ts or later.
func (p partition) OffsetForTime(ts int64) (offset, timestamp int64, ok bool, err error) {
	offset, timestamp, ok, err = p.Partition.OffsetForTime(ts)
	return offset, timestamp, ok, wireError(err)
}

// MaxTimestamp finds the first of the committed records with the latest timestamp.
func (p partition) MaxTimestamp() (offset, timestamp int64, ok bool, err error) {
	offset, timestamp, ok, err = p.Partition.MaxTimestamp()
	return offset, timestamp, ok, wireError(err)
}

// DeleteRecords moves the start of a partition.
func (b *Broker) DeleteRecords(ctx context.Context, topic string, number int32, before int64) (start int64, err error) {
	return change(ctx, b, func(ctx context.Context) (int64, error) {
		return b.controller.DeleteRecords(ctx, topic, number, before)
	})
}

// cursor reads a partition.
type cursor struct{ *replication.Cursor }

// Read appends batches to dst. A client that finds a bad checksum tells nobody, so it is found here.
func (c cursor) Read(dst []byte, offset int64, maxBytes int) ([]byte, error) {
	dst, err := c.Cursor.ReadChecked(dst, offset, maxBytes)
	return dst, wireError(err)
}
