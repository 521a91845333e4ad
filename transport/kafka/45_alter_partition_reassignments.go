package kafka

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// AlterPartitionReassignments, versions 0 and 1: partitions move to the nodes that are
// given, or, where that is null, back. The answer says that it was decided; the move goes
// on after it. Needs Alter on the cluster.
func (c *call) alterPartitionReassignments(q *kmsg.AlterPartitionAssignmentsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	r.AllowReplicationFactorChange = q.AllowReplicationFactorChange
	if !c.allowed(kmsg.ACLOperationAlter, kmsg.ACLResourceTypeCluster, clusterName) {
		r.ErrorCode, r.ErrorMessage = c.code(notForYouCluster())
		return r
	}
	ctx, cancel := c.within(q.TimeoutMillis)
	defer cancel()
	for i := range q.Topics {
		t := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		t.Topic = q.Topics[i].Topic
		t.Partitions = make([]kmsg.AlterPartitionAssignmentsResponseTopicPartition, len(q.Topics[i].Partitions))
		each(len(t.Partitions), func(j int) {
			want := &q.Topics[i].Partitions[j]
			p := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			p.Partition = want.Partition
			p.ErrorCode, p.ErrorMessage = c.code(c.reassign(ctx, t.Topic, want, q.Version == 0 || q.AllowReplicationFactorChange))
			t.Partitions[j] = p
		})
		r.Topics = append(r.Topics, t)
	}
	return r
}

// reassign moves one partition.
func (c *call) reassign(ctx context.Context, topic string, want *kmsg.AlterPartitionAssignmentsRequestTopicPartition, resize bool) error {
	if want.Replicas == nil {
		return c.broker().Reassign(ctx, topic, want.Partition, nil)
	}
	t, ok := c.broker().Topic(topic)
	if !ok || want.Partition < 0 || int(want.Partition) >= len(t.Partitions) {
		return kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition %d of topic %q", want.Partition, topic)
	}
	if len(want.Replicas) == 0 {
		return kerr.Errorf(kerr.INVALID_REPLICA_ASSIGNMENT, "no nodes are given")
	}
	for i, node := range want.Replicas {
		if slices.Contains(want.Replicas[:i], node) {
			return kerr.Errorf(kerr.INVALID_REPLICA_ASSIGNMENT, "node %d is given twice", node)
		}
	}
	if now := len(t.Partitions[want.Partition].Replicas); !resize && len(want.Replicas) != now {
		return kerr.Errorf(kerr.INVALID_REPLICATION_FACTOR, "%d nodes are given for %d replicas, and the request wants no other number", len(want.Replicas), now)
	}
	return c.broker().Reassign(ctx, topic, want.Partition, want.Replicas)
}
