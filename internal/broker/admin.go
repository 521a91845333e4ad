package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"
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

// maxTopicName is Kafka's bound, in bytes.
const maxTopicName = 249

// internalTopics are names that only the cluster itself gives.
var internalTopics = [...]string{replication.MetadataTopic, "__consumer_offsets", "__transaction_state", "__share_group_state"}

// checkName refuses names that no topic can have, or that no client gives.
func checkName(name string) error {
	switch {
	case name == "":
		return kerr.Errorf(kerr.INVALID_TOPIC_EXCEPTION, "the topic's name is empty")
	case name == "." || name == "..":
		return kerr.Errorf(kerr.INVALID_TOPIC_EXCEPTION, "a topic cannot be named %q", name)
	case len(name) > maxTopicName:
		return kerr.Errorf(kerr.INVALID_TOPIC_EXCEPTION, "the topic's name has %d characters, %d are possible", len(name), maxTopicName)
	case slices.Contains(internalTopics[:], name):
		return kerr.Errorf(kerr.INVALID_REQUEST, "%s is an internal topic: the cluster makes it when it needs it", name)
	}
	for i := range len(name) {
		c := name[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return kerr.Errorf(kerr.INVALID_TOPIC_EXCEPTION, "the topic's name has %q at byte %d: a-z A-Z 0-9 . _ - are possible", c, i)
		}
	}
	return nil
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
	spec, err := b.newTopic(&t)
	if err != nil {
		return kafka.Topic{}, err
	}
	if validateOnly {
		would := kafka.Topic{Name: t.Name, Partitions: make([]kafka.PartitionState, spec.Partitions)}
		for i := range would.Partitions {
			would.Partitions[i].Replicas = make([]int32, spec.Replicas)
		}
		return would, nil
	}
	return change(ctx, b, func(ctx context.Context) (kafka.Topic, error) {
		made, err := b.controller.CreateTopic(ctx, spec)
		if err != nil {
			return kafka.Topic{}, err
		}
		return b.describe(&made), nil
	})
}

// defaultReplicas is how many replicas the partitions of a topic get whose maker does not
// say, where there are as many nodes.
const defaultReplicas = 3

// newTopic checks a topic to be made, and fills in what it does not say.
func (b *Broker) newTopic(t *kafka.NewTopic) (spec replication.TopicSpec, err error) {
	if err := checkName(t.Name); err != nil {
		return spec, err
	}
	if err := b.checkFree(t.Name); err != nil {
		return spec, err
	}
	spec = replication.TopicSpec{Name: t.Name, Partitions: t.Partitions, Replicas: t.Replicas, Config: b.withDefaults(t.Config)}
	if _, err := replication.ParseSettings(spec.Config); err != nil {
		return spec, wireError(err)
	}
	if spec.Partitions == -1 {
		spec.Partitions = 1
	}
	if spec.Partitions < 1 || spec.Partitions > replication.MaxPartitions {
		return spec, kerr.Errorf(kerr.INVALID_PARTITIONS, "%d partitions: 1 to %d are possible, or -1 for the default", spec.Partitions, replication.MaxPartitions)
	}
	nodes := b.takers()
	switch {
	case spec.Replicas == -1:
		spec.Replicas = max(min(defaultReplicas, nodes), 1)
	case spec.Replicas < 1:
		return spec, kerr.Errorf(kerr.INVALID_REPLICATION_FACTOR, "a replication factor of %d: it is 1 or more, or -1 for the default", spec.Replicas)
	case spec.Replicas > nodes && t.ClampReplicas:
		spec.Replicas = max(nodes, 1)
	case spec.Replicas > nodes:
		return spec, kerr.Errorf(kerr.INVALID_REPLICATION_FACTOR, "a replication factor of %d: %d nodes are there that can have a replica", spec.Replicas, nodes)
	}
	return spec, nil
}

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

// NewTopicConfig lists the settings that a topic made with config has.
func (b *Broker) NewTopicConfig(config map[string]string) []kafka.ConfigEntry {
	return topicEntries(b.withDefaults(config))
}

// topicEntries lists all settings of a topic for which some were given.
func topicEntries(config map[string]string) []kafka.ConfigEntry {
	known := replication.KnownSettings()
	out := make([]kafka.ConfigEntry, 0, len(known))
	for _, s := range known {
		e := kafka.ConfigEntry{Name: s.Name, Value: s.Default, Default: s.Default, Doc: s.Doc}
		if v, ok := config[s.Name]; ok {
			e.Value, e.Set = v, true
		}
		out = append(out, e)
	}
	return out
}
