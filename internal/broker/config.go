package broker

import (
	"context"
	"maps"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/transport/kafka"
)

// configTypes are the types of settings as Kafka numbers them.
var configTypes = map[replication.SettingType]kmsg.ConfigType{
	replication.SettingString: kmsg.ConfigTypeString, replication.SettingBoolean: kmsg.ConfigTypeBoolean,
	replication.SettingInt: kmsg.ConfigTypeInt, replication.SettingLong: kmsg.ConfigTypeLong,
	replication.SettingDouble: kmsg.ConfigTypeDouble, replication.SettingList: kmsg.ConfigTypeList,
}

// nodeNames are the names under which Kafka's nodes have the defaults of topic settings.
var nodeNames = map[string]string{
	"cleanup.policy": "log.cleanup.policy", "compression.gzip.level": "compression.gzip.level", "compression.lz4.level": "compression.lz4.level",
	"compression.type": "compression.type", "compression.zstd.level": "compression.zstd.level", "delete.retention.ms": "log.cleaner.delete.retention.ms",
	"file.delete.delay.ms": "log.segment.delete.delay.ms", "flush.messages": "log.flush.interval.messages", "flush.ms": "log.flush.interval.ms",
	"index.interval.bytes": "log.index.interval.bytes", "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
	"max.message.bytes": "message.max.bytes", "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
	"message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms", "message.timestamp.type": "log.message.timestamp.type",
	"min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio", "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
	"min.insync.replicas": "min.insync.replicas", "preallocate": "log.preallocate", "retention.bytes": "log.retention.bytes",
	"retention.ms": "log.retention.ms", "segment.bytes": "log.segment.bytes", "segment.index.bytes": "log.index.size.max.bytes",
	"segment.jitter.ms": "log.roll.jitter.ms", "segment.ms": "log.roll.ms", "unclean.leader.election.enable": "unclean.leader.election.enable",
}

// topicEntries lists all settings of a topic for which some were given.
func topicEntries(config map[string]string) []kafka.ConfigEntry {
	known := replication.KnownSettings()
	out := make([]kafka.ConfigEntry, 0, len(known))
	for _, s := range known {
		e := kafka.ConfigEntry{Name: s.Name, NodeName: nodeNames[s.Name], Value: s.Default, Default: s.Default, Doc: s.Doc, Type: configTypes[s.Type]}
		if v, ok := config[s.Name]; ok {
			e.Value, e.Set = v, true
		}
		out = append(out, e)
	}
	return out
}

// NewTopicConfig lists the settings that a topic made with config has.
func (b *Broker) NewTopicConfig(config map[string]string) []kafka.ConfigEntry {
	return topicEntries(b.withDefaults(config))
}

// TopicConfig lists the settings of a topic.
func (b *Broker) TopicConfig(name string) ([]kafka.ConfigEntry, error) {
	t, ok := b.controller.Topic(name)
	if !ok {
		return nil, kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic %q", name)
	}
	return topicEntries(t.Config), nil
}

// AlterTopic gives settings values, or their defaults.
func (b *Broker) AlterTopic(ctx context.Context, name string, set map[string]string, unset []string, validateOnly bool) error {
	t, ok := b.controller.Topic(name)
	switch {
	case !ok:
		return kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic %q", name)
	case t.Internal:
		return kerr.Errorf(kerr.INVALID_CONFIG, "topic %q is internal and keeps its settings", name)
	}
	config := maps.Clone(t.Config)
	if config == nil {
		config = map[string]string{}
	}
	for _, k := range unset {
		delete(config, k)
	}
	maps.Copy(config, set)
	if _, err := replication.ParseSettings(config); err != nil {
		return wireError(err)
	}
	if validateOnly || maps.Equal(config, t.Config) {
		return nil
	}
	_, err := change(ctx, b, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.controller.AlterTopic(ctx, name, set, unset)
	})
	return err
}
