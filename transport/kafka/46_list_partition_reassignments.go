package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListPartitionReassignments, version 0: the partitions that are on their way to other
// nodes, of those asked for, or of all where that is null. Needs Describe on the cluster.
func (c *call) listPartitionReassignments(q *kmsg.ListPartitionReassignmentsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	if !c.allowed(kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeCluster, clusterName) {
		r.ErrorCode, r.ErrorMessage = c.code(notForYouCluster())
		return r
	}
	for _, move := range c.broker().Reassignments() {
		asked := func(t kmsg.ListPartitionReassignmentsRequestTopic) bool {
			return t.Topic == move.Topic && slices.Contains(t.Partitions, move.Partition)
		}
		if q.Topics != nil && !slices.ContainsFunc(q.Topics, asked) {
			continue
		}
		if n := len(r.Topics); n == 0 || r.Topics[n-1].Topic != move.Topic {
			t := kmsg.NewListPartitionReassignmentsResponseTopic()
			t.Topic = move.Topic
			r.Topics = append(r.Topics, t)
		}
		p := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
		p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas = move.Partition, move.Replicas, move.Adding, move.Removing
		t := &r.Topics[len(r.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	return r
}
