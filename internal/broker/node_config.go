package broker

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

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

// given is a setting of the node.
func given(name, value, fallback string, kind kmsg.ConfigType, doc string) kafka.ConfigEntry {
	return kafka.ConfigEntry{Name: name, Value: value, Default: fallback, Set: value != fallback, Type: kind, Doc: doc}
}
