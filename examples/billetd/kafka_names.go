package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/billetlog/billet"
)

// kafkaName is a setting under the name that Kafka's brokers have for it.
type kafkaName struct {
	name, setting string
	unit          string // of Kafka's number
}

// kafkaNames are those that stand for settings of the node.
func kafkaNames() []kafkaName {
	return []kafkaName{
		{"node.id", "id", ""}, {"broker.id", "id", ""}, {"broker.rack", "rack", ""}, {"log.dirs", "dir", ""},
		{"auto.create.topics.enable", "kafka-auto-create-topics", ""},
		{"num.partitions", "kafka-default-partitions", ""},
		{"super.users", "kafka-super-users", ""},
		{"sasl.enabled.mechanisms", "kafka-sasl", ""},
		{"max.connections", "kafka-connections-max", ""},
		{"max.connections.per.ip", "kafka-connections-per-host-max", ""},
		{"connections.max.idle.ms", "kafka-idle-timeout", "ms"},
		{"connections.max.reauth.ms", "kafka-reauth-after", "ms"},
		{"socket.request.max.bytes", "kafka-request-bytes-max", ""},
		{"replica.lag.time.max.ms", "replica-lag-time-max", "ms"},
		{"offsets.topic.num.partitions", "groups-offsets-partitions", ""},
		{"offsets.retention.minutes", "groups-offsets-retention", "m"},
		{"offsets.retention.check.interval.ms", "groups-offsets-check-interval", "ms"},
		{"group.min.session.timeout.ms", "groups-session-timeout-min", "ms"},
		{"group.max.session.timeout.ms", "groups-session-timeout-max", "ms"},
		{"group.initial.rebalance.delay.ms", "groups-initial-rebalance-delay", "ms"},
		{"group.max.size", "groups-members-max", ""},
		{"group.consumer.session.timeout.ms", "groups-session-timeout", "ms"},
		{"group.consumer.heartbeat.interval.ms", "groups-heartbeat-interval", "ms"},
	}
}

// topicNames are the names under which Kafka's brokers have defaults of topics, where
// they are other names than those of topics.
func topicNames() map[string]string {
	return map[string]string{
		"log.cleanup.policy": "cleanup.policy", "log.retention.ms": "retention.ms", "log.retention.bytes": "retention.bytes",
		"log.segment.bytes": "segment.bytes", "log.roll.ms": "segment.ms", "log.flush.interval.ms": "flush.ms",
		"log.index.interval.bytes": "index.interval.bytes", "message.max.bytes": "max.message.bytes",
		"log.message.timestamp.type":          "message.timestamp.type",
		"log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
		"log.message.timestamp.after.max.ms":  "message.timestamp.after.max.ms",
	}
}

// unbounded are settings that bound what clients may ask for and that have no bound here:
// any value is within what is possible.
func unbounded() []string {
	return []string{"group.consumer.min.heartbeat.interval.ms", "group.consumer.min.session.timeout.ms"}
}

// kafkaNameList lists all names of Kafka's that are taken.
func kafkaNameList() []string {
	names := slices.Concat(slices.Collect(maps.Keys(topicNames())), unbounded())
	for _, k := range kafkaNames() {
		names = append(names, k.name)
	}
	for _, s := range billet.Settings() {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// setKafkaName sets what name=value says, by one of Kafka's names.
func setKafkaName(o *options, all []setting, arg string) error {
	name, value, ok := strings.Cut(arg, "=")
	if !ok {
		return fmt.Errorf("%q is neither a flag nor name=value", arg)
	}
	for _, k := range kafkaNames() {
		if k.name != name {
			continue
		}
		i := slices.IndexFunc(all, func(s setting) bool { return s.name == k.setting })
		v := field(o, all[i].field)
		text := value + k.unit
		if name == "super.users" { // Kafka separates them by semicolons
			text = strings.ReplaceAll(value, ";", ",")
		}
		if name == "group.initial.rebalance.delay.ms" && value == "0" {
			text = "-1ns" // 0 would be the default
		}
		if err := setText(v, text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	if slices.Contains(unbounded(), name) {
		return nil
	}
	if topic, ok := topicNames()[name]; ok {
		name = topic
	}
	if !slices.ContainsFunc(billet.Settings(), func(s billet.Setting) bool { return s.Name == name }) {
		return fmt.Errorf("there is no setting %q: -help lists those of Kafka's names that there are", name)
	}
	if o.TopicDefaults == nil {
		o.TopicDefaults = map[string]string{}
	}
	o.TopicDefaults[name] = value
	return nil
}
