package replication

import (
	"cmp"
	"slices"
)

// LocalReplica is what this node has of a partition.
type LocalReplica struct {
	Topic     string
	Partition int32
	Internal  bool
	State     PartitionState
	// Bytes is the size of the log's segments, Start and End the offsets between which they have records.
	Bytes, Start, End int64
	// Lag is how many committed records it lacks, as far as this node has heard of the leader.
	Lag int64
}

// LocalReplicas lists this node's replicas by topic and number, those that do not run included.
func (c *Controller) LocalReplicas() []LocalReplica {
	var out []LocalReplica
	for _, p := range c.host.Partitions() {
		r := LocalReplica{
			Topic: p.spec.Topic, Partition: p.spec.Partition, Internal: p.spec.Internal, Bytes: p.Size(), Start: p.StartOffset(), End: p.EndOffset(),
		}
		r.State, _ = p.State()
		if route := c.router.routeOf(wirePartition{p.spec.TopicID, p.spec.Partition}); route != nil && r.State != StateLeader {
			r.Lag = max(route.Info().HighWatermark-r.End, 0)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b LocalReplica) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

// Dir is the node's directory, where all of its replicas are.
func (h *Host) Dir() string { return h.cfg.Dir }
