package broker

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/transport/kafka"
)

// change makes a change of the cluster and waits for it as long as ctx allows. The change
// goes on when ctx ends, so that it is not left half done; only Close ends it.
func change[T any](ctx context.Context, b *Broker, do func(ctx context.Context) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	b.changes.Go(func() {
		value, err := do(b.life)
		done <- outcome{value, err}
	})
	select {
	case o := <-done:
		return o.value, wireError(o.err)
	case <-ctx.Done():
		var none T
		return none, kerr.Errorf(kerr.REQUEST_TIMED_OUT, "it was not done in time, and goes on")
	}
}

// fold makes names equal that are taken for each other: names of metrics have '_' for '.'.
func fold(name string) string { return strings.ReplaceAll(name, ".", "_") }

// checkFree refuses the name of a topic that is there, or one that is taken for it.
func (b *Broker) checkFree(name string) error {
	if _, ok := b.controller.Topic(name); ok {
		return kerr.Errorf(kerr.TOPIC_ALREADY_EXISTS, "topic %q is there already", name)
	}
	if !strings.ContainsAny(name, "._") {
		return nil
	}
	folded := fold(name)
	for _, t := range b.controller.Topics() {
		if fold(t.Name) == folded {
			return kerr.Errorf(kerr.INVALID_TOPIC_EXCEPTION, "topic %q differs from topic %q only in '.' and '_'", name, t.Name)
		}
	}
	return nil
}

// CreateTopic makes a topic, or only tells whether it could.
func (b *Broker) CreateTopic(ctx context.Context, t kafka.NewTopic, validateOnly bool) (kafka.Topic, error) {
	spec := replication.TopicSpec{Name: t.Name, Partitions: t.Partitions, Replicas: t.Replicas, Config: b.withDefaults(t.Config),
		Assignments: t.Assignments, ValidateOnly: validateOnly}
	if err := b.checkFree(t.Name); err != nil {
		return kafka.Topic{}, err
	}
	if err := b.checkCounts(&spec, t.ClampReplicas); err != nil {
		return kafka.Topic{}, err
	}
	return change(ctx, b, func(ctx context.Context) (kafka.Topic, error) {
		made, err := b.controller.CreateTopic(ctx, spec)
		if err != nil {
			return kafka.Topic{}, err
		}
		if validateOnly {
			made.ID = kafka.TopicID{}
			return wouldBe(&made), nil
		}
		return b.describe(&made), nil
	})
}

// wouldBe describes a topic that is not made.
func wouldBe(t *replication.TopicState) kafka.Topic {
	out := kafka.Topic{Name: t.Name, Partitions: make([]kafka.PartitionState, len(t.Partitions))}
	for i := range t.Partitions {
		p := &out.Partitions[i]
		p.Leader, p.Epoch = -1, -1
		for _, r := range t.Partitions[i].Replicas {
			p.Replicas = append(p.Replicas, r.Node)
		}
	}
	return out
}

// checkCounts translates the counts of a topic to be made, where -1 is a default.
func (b *Broker) checkCounts(spec *replication.TopicSpec, clamp bool) error {
	if spec.Assignments != nil {
		spec.Partitions, spec.Replicas = 0, 0
		return nil
	}
	if spec.Partitions == -1 {
		spec.Partitions = 1
	}
	if spec.Partitions < 1 { // more than there can be is found below
		return kerr.Errorf(kerr.INVALID_PARTITIONS, "%d partitions: 1 or more are possible, or -1 for the default", spec.Partitions)
	}
	nodes := b.takers()
	switch {
	case spec.Replicas == -1:
		spec.Replicas = 0
	case spec.Replicas < 1:
		return kerr.Errorf(kerr.INVALID_REPLICATION_FACTOR, "a replication factor of %d: it is 1 or more, or -1 for the default", spec.Replicas)
	case spec.Replicas > nodes && clamp:
		spec.Replicas = max(nodes, 1)
	case spec.Replicas > replication.ReplicasMax:
		return kerr.Errorf(kerr.INVALID_REPLICATION_FACTOR, "a replication factor of %d: up to %d are possible", spec.Replicas, replication.ReplicasMax)
	}
	return nil
}

// defaultReplicas is the replication factor of topics whose makers do not say.
const defaultReplicas = 3

// takers counts the nodes that can be given a replica.
func (b *Broker) takers() (n int) {
	for _, node := range b.controller.Nodes() {
		if node.Mode == replication.NodeActive && (node.ID == b.opts.Self || b.node.Reachable(node.ID)) {
			n++
		}
	}
	return n
}

// withDefaults adds this node's defaults for topics.
func (b *Broker) withDefaults(config map[string]string) map[string]string {
	out := maps.Clone(b.opts.TopicDefaults)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, config)
	return out
}

// DeleteTopic deletes a topic.
func (b *Broker) DeleteTopic(ctx context.Context, name string, id kafka.TopicID) error {
	t, ok := b.controller.Topic(name)
	switch {
	case !ok:
		return kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic %q", name)
	case id != kafka.TopicID{} && t.ID != id:
		return kerr.Errorf(kerr.UNKNOWN_TOPIC_ID, "topic %q has another id by now", name)
	case t.Internal:
		return kerr.Errorf(kerr.INVALID_TOPIC_EXCEPTION, "topic %q is internal and is not deleted", name)
	}
	_, err := change(ctx, b, func(ctx context.Context) (struct{}, error) {
		if err := b.controller.DeleteTopic(ctx, name); err != nil {
			return struct{}{}, fmt.Errorf("deleting topic %q: %w", name, err)
		}
		return struct{}{}, nil
	})
	return err
}

// AddPartitions makes a topic have more partitions.
func (b *Broker) AddPartitions(ctx context.Context, name string, total int, assignments [][]int32, validateOnly bool) error {
	t, ok := b.controller.Topic(name)
	switch {
	case !ok:
		return kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic %q", name)
	case t.Internal:
		return kerr.Errorf(kerr.INVALID_TOPIC_EXCEPTION, "topic %q is internal and keeps its partitions", name)
	}
	_, err := change(ctx, b, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.controller.ExtendTopic(ctx, replication.MorePartitions{Topic: name, Total: total, Assignments: assignments, ValidateOnly: validateOnly})
	})
	return err
}
