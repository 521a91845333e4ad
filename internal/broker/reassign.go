package broker

import (
	"context"

	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/transport/kafka"
)

// checkPartition refuses a partition that is not there.
func (b *Broker) checkPartition(topic string, number int32) error {
	t, ok := b.controller.Topic(topic)
	if !ok || topic == replication.MetadataTopic || number < 0 || int(number) >= len(t.Partitions) {
		return kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition %d of topic %q", number, topic)
	}
	return nil
}

// Reassign has a partition move to nodes, or sends it back.
func (b *Broker) Reassign(ctx context.Context, topic string, number int32, nodes []int32) error {
	if err := b.checkPartition(topic, number); err != nil {
		return err
	}
	_, err := change(ctx, b, func(ctx context.Context) (struct{}, error) {
		if nodes == nil {
			return struct{}{}, b.controller.CancelReassign(ctx, topic, number)
		}
		return struct{}{}, b.controller.Reassign(ctx, topic, number, nodes)
	})
	return err
}

// Reassignments lists the partitions that are on their way to other nodes.
func (b *Broker) Reassignments() []kafka.Reassignment {
	var out []kafka.Reassignment
	for _, r := range b.controller.Reassignments() {
		if r.Topic != replication.MetadataTopic {
			out = append(out, kafka.Reassignment(r))
		}
	}
	return out
}

// ElectPreferred has a partition's preferred replica lead.
func (b *Broker) ElectPreferred(ctx context.Context, topic string, number int32) error {
	if err := b.checkPartition(topic, number); err != nil {
		return err
	}
	return wireError(b.controller.ElectPreferred(ctx, topic, number))
}

// LogDirs lists the node's one directory with its replicas.
func (b *Broker) LogDirs() []kafka.LogDir {
	dir := kafka.LogDir{Path: b.node.Host.Dir(), TotalBytes: -1}
	dir.Free, _ = b.node.Host.DiskFree()
	if total := b.node.Host.DiskTotal(); total > 0 {
		dir.TotalBytes = total
	}
	for _, r := range b.controller.LocalReplicas() {
		if r.Topic != replication.MetadataTopic {
			dir.Replicas = append(dir.Replicas, kafka.LogDirReplica{Topic: r.Topic, Partition: r.Partition, Bytes: r.Bytes, Lag: r.Lag})
		}
	}
	return []kafka.LogDir{dir}
}
