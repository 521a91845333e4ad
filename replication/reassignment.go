package replication

import (
	"context"
	"fmt"
	"slices"
)

// Reassignment is a partition on its way to other nodes.
type Reassignment struct {
	Topic     string
	Partition int32
	// Replicas are all nodes that have a replica, or will; Adding those of them that get one, Removing those that lose theirs.
	Replicas, Adding, Removing []int32
}

// Reassignments lists the partitions that are on their way to other nodes, whatever the cause, by topic and number.
func (c *Controller) Reassignments() (out []Reassignment) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, t := range c.mu.topicsByName() {
		for i := range t.Partitions {
			if a := &t.Partitions[i]; a.Target != nil {
				out = append(out, a.reassignment(t.Name))
			}
		}
	}
	return out
}

func (a *PartitionAssignment) reassignment(topic string) Reassignment {
	r := Reassignment{Topic: topic, Partition: a.Partition, Replicas: slices.Clone(a.Target)}
	for _, n := range a.Target {
		if !slices.ContainsFunc(a.Replicas, func(r ReplicaAssignment) bool { return r.Node == n && r.Role == RoleVoter }) {
			r.Adding = append(r.Adding, n)
		}
	}
	for _, have := range a.Replicas {
		if !slices.Contains(r.Replicas, have.Node) {
			r.Replicas, r.Removing = append(r.Replicas, have.Node), append(r.Removing, have.Node)
		}
	}
	return r
}

// CancelReassign sends a partition back to the nodes that it was on when Reassign or SetReplicas gave it others. It returns when that is decided. ErrNoReassignment
// when it is not on its way by one of these.
func (c *Controller) CancelReassign(ctx context.Context, topic string, partition int32) error {
	_, err := ask(ctx, c, "cancel-reassign", reassignRequest{Topic: topic, Partition: partition}, (*Controller).cancelReassign)
	return err
}

func (c *Controller) cancelReassign(ctx context.Context, q reassignRequest) (nothing, error) {
	err := c.decide(ctx, func(ctx context.Context) error {
		_, a, err := c.assignment(q.Topic, q.Partition)
		if err != nil {
			return err
		}
		if a.Origin == nil {
			return fmt.Errorf("%w: %s-%d", ErrNoReassignment, q.Topic, q.Partition)
		}
		if err := checkTarget(a.Origin, c.nodeViews()); err != nil {
			return fmt.Errorf("%s-%d cannot go back: %w", q.Topic, q.Partition, err)
		}
		a.Target, a.Origin = a.Origin, nil
		return c.write(ctx, topicRecord(c.topic(q.Topic).with(a), false))
	})
	c.wakeGovernor()
	return nothing{}, err
}

// ElectPreferred has a partition's preferred replica, the first one, lead it. It returns when that is so. ErrElectionNotNeeded when it leads already,
// ErrPreferredLeader when it cannot.
func (c *Controller) ElectPreferred(ctx context.Context, topic string, partition int32) error {
	if topic == MetadataTopic {
		return fmt.Errorf("%w: %q has no preferred leader", ErrInvalidTopic, topic)
	}
	_, a, err := c.assignment(topic, partition)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	g, leader, err := c.groupOf(ctx, a)
	if err != nil {
		return fmt.Errorf("%s-%d: %w", topic, partition, err)
	}
	first := a.Replicas[0]
	if g.Leader == first.Replica {
		return fmt.Errorf("%w: %s-%d", ErrElectionNotNeeded, topic, partition)
	}
	nodes := c.nodeViewMap()
	if p := newPlanner(g, nodes); p == nil || first.Role != RoleVoter || !p.canLead(first.Replica) || !nodes[first.Node].takes() {
		return fmt.Errorf("%w: %s-%d on node %d", ErrPreferredLeader, topic, partition, first.Node)
	}
	return c.stepOn(ctx, leader, stepRequest{Shard: a.Shard, Kind: stepTransferLeader, Replica: first.Replica, Node: first.Node})
}
