package broker

import (
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/group"
	"github.com/billetlog/billet/transport/kafka"
)

// NodeConfig lists how this node is set up: its defaults for topics, what it is, and what
// of Kafka's choices it has made for good.
func (b *Broker) NodeConfig() []kafka.ConfigEntry {
	id := strconv.Itoa(int(b.opts.Self))
	out := []kafka.ConfigEntry{
		given("node.id", id, "", kmsg.ConfigTypeInt, "the node's id"),
		given("broker.id", id, "", kmsg.ConfigTypeInt, "the node's id"),
		given("broker.rack", b.opts.Rack, "", kmsg.ConfigTypeString, "where the node stands: replicas are spread over racks"),
		given("log.dirs", b.opts.Dir, "", kmsg.ConfigTypeString, "the node's directory"),
		given("process.roles", "broker,controller", "broker,controller", kmsg.ConfigTypeList, "any node may lead the metadata"),
		given("delete.topic.enable", "true", "true", kmsg.ConfigTypeBoolean, "topics can be deleted"),
		given("default.replication.factor", strconv.Itoa(defaultReplicas), strconv.Itoa(defaultReplicas), kmsg.ConfigTypeInt,
			"replicas of a topic whose maker does not say, or as many as there are nodes"),
		given("auto.leader.rebalance.enable", "true", "true", kmsg.ConfigTypeBoolean, "leadership goes back to the preferred replica"),
	}
	out = append(out, b.groupConfig()...)
	for _, e := range topicEntries(b.opts.TopicDefaults) {
		if e.NodeName != "" {
			e.Name, e.NodeName = e.NodeName, ""
			out = append(out, e)
		}
	}
	for i := range out {
		out[i].ReadOnly = true
	}
	return out
}

// groupConfig lists the settings of groups.
func (b *Broker) groupConfig() []kafka.ConfigEntry {
	var now, fallback group.Options
	now = b.opts.Groups
	now.EnsureDefaults()
	fallback.EnsureDefaults()
	millis := func(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 0), 10) }
	minutes := func(d time.Duration) string { return strconv.FormatInt(int64(d/time.Minute), 10) }
	out := []kafka.ConfigEntry{
		given("offsets.topic.num.partitions", strconv.Itoa(b.groups.partitions), strconv.Itoa(defaultOffsetsPartitions), kmsg.ConfigTypeInt,
			"partitions of __consumer_offsets when it is made"),
		given("offsets.retention.minutes", minutes(now.OffsetsRetention), minutes(fallback.OffsetsRetention), kmsg.ConfigTypeInt, "how long offsets live that nobody needs"),
		given("offset.metadata.max.bytes", strconv.Itoa(now.OffsetMetadataBytesMax), strconv.Itoa(fallback.OffsetMetadataBytesMax), kmsg.ConfigTypeInt,
			"bytes of the text that goes with an offset at most"),
		given("group.max.size", strconv.Itoa(now.MembersMax), strconv.Itoa(fallback.MembersMax), kmsg.ConfigTypeInt, "members of a group at most"),
		given("group.consumer.max.size", strconv.Itoa(now.MembersMax), strconv.Itoa(fallback.MembersMax), kmsg.ConfigTypeInt, "members of a group at most"),
	}
	for _, e := range []struct {
		name, doc     string
		now, fallback time.Duration
	}{
		{"offsets.retention.check.interval.ms", "how often offsets are looked through", now.OffsetsCheckInterval, fallback.OffsetsCheckInterval},
		{"group.min.session.timeout.ms", "the shortest session timeout of a classic group's member", now.SessionTimeoutMin, fallback.SessionTimeoutMin},
		{"group.max.session.timeout.ms", "the longest session timeout of a classic group's member", now.SessionTimeoutMax, fallback.SessionTimeoutMax},
		{"group.initial.rebalance.delay.ms", "how long an empty classic group waits for more members", now.InitialRebalanceDelay, fallback.InitialRebalanceDelay},
		{"group.consumer.session.timeout.ms", "after which silence a consumer group's member is removed", now.ConsumerSessionTimeout, fallback.ConsumerSessionTimeout},
		{"group.consumer.heartbeat.interval.ms", "how often a consumer group's member sends a heartbeat", now.ConsumerHeartbeatInterval, fallback.ConsumerHeartbeatInterval},
	} {
		out = append(out, given(e.name, millis(e.now), millis(e.fallback), kmsg.ConfigTypeInt, e.doc))
	}
	return out
}

// given is a setting of the node.
func given(name, value, fallback string, kind kmsg.ConfigType, doc string) kafka.ConfigEntry {
	return kafka.ConfigEntry{Name: name, Value: value, Default: fallback, Set: value != fallback, Type: kind, Doc: doc}
}
