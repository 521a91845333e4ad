package kafka

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// nodeConfig lists how this node is set up, by name.
func (s *Server) nodeConfig() []ConfigEntry {
	o := &s.opts
	out := append(s.opts.Broker.NodeConfig(),
		serverEntry("listeners", s.addresses(false), "", kmsg.ConfigTypeString, "the addresses that clients connect to"),
		serverEntry("advertised.listeners", s.addresses(true), "", kmsg.ConfigTypeString, "the addresses that clients are told"),
		serverEntry("num.partitions", strconv.Itoa(o.DefaultPartitions), "1", kmsg.ConfigTypeInt, "partitions of a topic whose maker does not say"),
		serverEntry("auto.create.topics.enable", strconv.FormatBool(o.AutoCreateTopics), "false", kmsg.ConfigTypeBoolean, "topics are made when clients ask for them"),
		serverEntry("socket.request.max.bytes", strconv.Itoa(o.RequestBytesMax), strconv.Itoa(defaultRequestBytesMax), kmsg.ConfigTypeInt, "bytes of a request at most"),
		serverEntry("fetch.max.bytes", strconv.Itoa(o.FetchBytesMax), strconv.Itoa(defaultFetchBytesMax), kmsg.ConfigTypeInt, "bytes of records in an answer at most"),
		serverEntry("max.connections", strconv.Itoa(o.ConnectionsMax), strconv.Itoa(defaultConnectionsMax), kmsg.ConfigTypeInt, "connections of clients at most"),
		serverEntry("connections.max.idle.ms", strconv.FormatInt(o.IdleTimeout.Milliseconds(), 10), strconv.FormatInt(defaultIdleTimeout.Milliseconds(), 10),
			kmsg.ConfigTypeLong, "after how long a connection that asks nothing is closed"),
	)
	slices.SortStableFunc(out, func(a, b ConfigEntry) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func serverEntry(name, value, fallback string, kind kmsg.ConfigType, doc string) ConfigEntry {
	return ConfigEntry{Name: name, Value: value, Default: fallback, Set: value != fallback, Type: kind, Doc: doc, ReadOnly: true}
}

// addresses lists the listeners as Kafka writes them.
func (s *Server) addresses(advertised bool) string {
	var out []string
	for _, l := range s.listeners {
		at := l.opts.Address
		if advertised {
			at = l.host + ":" + strconv.Itoa(int(l.port))
		}
		out = append(out, l.opts.Name+"://"+at)
	}
	return strings.Join(out, ",")
}

// checkNodeName refuses the name of a resource that is not this node. "" is all nodes.
func (c *call) checkNodeName(name string) error {
	if name == "" {
		return nil
	}
	id, err := strconv.ParseInt(name, 10, 32)
	switch self := c.broker().Self(); {
	case err != nil:
		return kerr.Errorf(kerr.INVALID_REQUEST, "a node is named by its id, not %q", name)
	case int32(id) != self:
		return kerr.Errorf(kerr.INVALID_REQUEST, "this is node %d, and node %d is asked for: ask that one", self, id)
	}
	return nil
}

// checkConfigAccess refuses clients that may not do that to the settings of a resource,
// and resources that nobody has.
func (c *call) checkConfigAccess(op kmsg.ACLOperation, kind kmsg.ConfigResourceType, name string) error {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		if !c.allowed(op, kmsg.ACLResourceTypeTopic, name) {
			return notForYou()
		}
		return nil
	case kmsg.ConfigResourceTypeBroker:
		if !c.allowed(op, kmsg.ACLResourceTypeCluster, clusterName) {
			return notForYouCluster()
		}
		return nil
	case kmsg.ConfigResourceTypeBrokerLogger, kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig:
		return kerr.Errorf(kerr.INVALID_REQUEST, "a %s has no settings here: topics and nodes have", strings.ToLower(kind.String()))
	}
	return kerr.Errorf(kerr.INVALID_REQUEST, "resource type %d is not known", kind)
}

// alteration is what is to become of the settings of a topic.
type alteration struct {
	set   map[string]string
	unset []string
}

// alterConfig changes the settings of a resource: what plan makes of its present ones.
func (c *call) alterConfig(kind kmsg.ConfigResourceType, name string, validateOnly bool, plan func(now []ConfigEntry) (alteration, error)) error {
	if err := c.checkConfigAccess(kmsg.ACLOperationAlterConfigs, kind, name); err != nil {
		return err
	}
	if kind == kmsg.ConfigResourceTypeBroker {
		if err := c.checkNodeName(name); err != nil {
			return err
		}
		return kerr.Errorf(kerr.INVALID_REQUEST, "the settings of a node are given when it starts: they are not changed by clients")
	}
	now, err := c.broker().TopicConfig(name)
	if err != nil {
		return err
	}
	a, err := plan(now)
	if err != nil {
		return err
	}
	ctx, cancel := c.within(int32(alterTimeout.Milliseconds()))
	defer cancel()
	return c.broker().AlterTopic(ctx, name, a.set, a.unset, validateOnly)
}
