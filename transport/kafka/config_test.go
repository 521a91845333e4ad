package kafka

import (
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// describe asks for settings.
func describe(t *testing.T, s *Server, v int16, kind kmsg.ConfigResourceType, name string, keys ...string) kmsg.DescribeConfigsResponseResource {
	t.Helper()
	q := kmsg.NewPtrDescribeConfigsRequest()
	q.IncludeSynonyms, q.IncludeDocumentation = true, true
	q.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: keys}}
	r := askAdmin[*kmsg.DescribeConfigsResponse](t, s, q, v).Resources[0]
	if r.ResourceType != kind || r.ResourceName != name {
		t.Errorf("the answer is about %v %q", r.ResourceType, r.ResourceName)
	}
	return r
}

func TestDescribeConfigs(t *testing.T) {
	versionsOf(t, kmsg.DescribeConfigs, func(t *testing.T, v int16) {
		b := newAdminBroker()
		s := serveAdmin(t, b)
		askAdmin[*kmsg.CreateTopicsResponse](t, s, createRequest(createTopic("a", 1, 1, "retention.ms", "5")), 7)
		r := describe(t, s, v, kmsg.ConfigResourceTypeTopic, "a")
		if r.ErrorCode != 0 || len(r.Configs) != 2 {
			t.Fatalf("%+v", r)
		}
		set, fallback := r.Configs[0], r.Configs[1]
		if *set.Value != "5" || set.IsDefault || set.ReadOnly || *fallback.Value != "delete" || v == 0 && !fallback.IsDefault {
			t.Errorf("%+v %+v", set, fallback)
		}
		if v >= 1 && (set.Source != kmsg.ConfigSourceDynamicTopicConfig || fallback.Source != kmsg.ConfigSourceDefaultConfig || len(set.ConfigSynonyms) != 2 || set.ConfigSynonyms[1].Name != "log.retention.ms") {
			t.Errorf("%+v %+v", set, fallback)
		}
		if v >= 3 && (set.ConfigType != kmsg.ConfigTypeLong || *set.Documentation != "how long") {
			t.Errorf("%+v", set)
		}
		for _, keys := range [][]string{{"cleanup.policy"}, {"none", "cleanup.policy"}} {
			if r = describe(t, s, v, kmsg.ConfigResourceTypeTopic, "a", keys...); len(r.Configs) != 1 || r.Configs[0].Name != "cleanup.policy" {
				t.Errorf("of %v: %+v", keys, r.Configs)
			}
		}
		node := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
		for _, c := range describe(t, s, v, kmsg.ConfigResourceTypeBroker, "7").Configs {
			node[c.Name] = c
			if !c.ReadOnly {
				t.Errorf("%s can be changed", c.Name)
			}
		}
		if *node["node.id"].Value != "7" || *node["num.partitions"].Value != "3" || node["secret"].Value != nil || *node["auto.create.topics.enable"].Value != "false" {
			t.Errorf("the node: %v", node)
		}
		if v >= 1 && (node["num.partitions"].Source != kmsg.ConfigSourceStaticBrokerConfig || node["max.connections"].Source != kmsg.ConfigSourceDefaultConfig) {
			t.Errorf("sources: %v", node)
		}
	})
}

func TestDescribeConfigsErrors(t *testing.T) {
	s := serveAdmin(t, newAdminBroker())
	for _, c := range []struct {
		kind kmsg.ConfigResourceType
		name string
		code int16
	}{
		{kmsg.ConfigResourceTypeTopic, "none", kerr.UNKNOWN_TOPIC_OR_PARTITION},
		{kmsg.ConfigResourceTypeBroker, "", 0},
		{kmsg.ConfigResourceTypeBroker, "8", kerr.INVALID_REQUEST},
		{kmsg.ConfigResourceTypeBroker, "x", kerr.INVALID_REQUEST},
		{kmsg.ConfigResourceTypeBrokerLogger, "7", kerr.INVALID_REQUEST},
		{kmsg.ConfigResourceTypeGroupConfig, "g", kerr.INVALID_REQUEST},
		{99, "x", kerr.INVALID_REQUEST},
	} {
		if r := describe(t, s, 4, c.kind, c.name); r.ErrorCode != c.code || len(r.Configs) != 0 {
			t.Errorf("%v %q: %+v", c.kind, c.name, r)
		}
	}
	closed := serveAdmin(t, newAdminBroker(), func(o *Options) { o.Authorize = true })
	if r := describe(t, closed, 4, kmsg.ConfigResourceTypeTopic, "none"); r.ErrorCode != kerr.TOPIC_AUTHORIZATION_FAILED {
		t.Errorf("%+v", r)
	}
	if r := describe(t, closed, 4, kmsg.ConfigResourceTypeBroker, "7"); r.ErrorCode != kerr.CLUSTER_AUTHORIZATION_FAILED {
		t.Errorf("%+v", r)
	}
}

func TestAlterConfigs(t *testing.T) {
	versionsOf(t, kmsg.AlterConfigs, func(t *testing.T, v int16) {
		b := newAdminBroker()
		s := serveAdmin(t, b)
		askAdmin[*kmsg.CreateTopicsResponse](t, s, createRequest(createTopic("a", 1, 1, "retention.ms", "5")), 7)
		alter := func(kind kmsg.ConfigResourceType, name string, config ...*string) kmsg.AlterConfigsRequestResource {
			r := kmsg.AlterConfigsRequestResource{ResourceType: kind, ResourceName: name}
			for i := 0; i < len(config); i += 2 {
				r.Configs = append(r.Configs, kmsg.AlterConfigsRequestResourceConfig{Name: *config[i], Value: config[i+1]})
			}
			return r
		}
		str := kmsg.StringPtr
		topic, node := kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
		q := kmsg.NewPtrAlterConfigsRequest()
		q.Resources = []kmsg.AlterConfigsRequestResource{
			alter(topic, "a", str("cleanup.policy"), str("x")), alter(topic, "none"), alter(node, "7"), alter(node, "9"), alter(8, "7"), alter(topic, "twice"), alter(topic, "twice"),
		}
		want := []int16{0, kerr.UNKNOWN_TOPIC_OR_PARTITION, kerr.INVALID_REQUEST, kerr.INVALID_REQUEST, kerr.INVALID_REQUEST, kerr.INVALID_REQUEST, kerr.INVALID_REQUEST}
		for _, only := range []bool{true, false} {
			q.ValidateOnly = only
			for i, got := range askAdmin[*kmsg.AlterConfigsResponse](t, s, q, v).Resources {
				if got.ErrorCode != want[i] || got.ResourceName != q.Resources[i].ResourceName {
					t.Errorf("answer %d: %+v, want %d", i, got, want[i])
				}
			}
			config := describe(t, s, 4, topic, "a").Configs
			if retention, policy := *config[0].Value, *config[1].Value; only != (retention == "5") || only != (policy == "delete") {
				t.Errorf("validate only %v: %s %s", only, retention, policy)
			}
		}
		for _, c := range []struct {
			resource kmsg.AlterConfigsRequestResource
			code     int16
		}{
			{alter(topic, "a", str("bad"), str("x")), kerr.INVALID_CONFIG},
			{alter(topic, "a", str("retention.ms"), nil), kerr.INVALID_REQUEST},
			{alter(topic, "a", str("retention.ms"), str("1"), str("retention.ms"), str("2")), kerr.INVALID_REQUEST},
		} {
			q.Resources = []kmsg.AlterConfigsRequestResource{c.resource}
			if got := askAdmin[*kmsg.AlterConfigsResponse](t, s, q, v).Resources[0]; got.ErrorCode != c.code || got.ErrorMessage == nil {
				t.Errorf("%+v: %+v", c.resource, got)
			}
		}
		closed := serveAdmin(t, b, func(o *Options) { o.Authorize = true })
		if got := askAdmin[*kmsg.AlterConfigsResponse](t, closed, q, v).Resources[0]; got.ErrorCode != kerr.TOPIC_AUTHORIZATION_FAILED {
			t.Errorf("not allowed: %+v", got)
		}
	})
}

func TestIncrementalAlterConfigs(t *testing.T) {
	versionsOf(t, kmsg.IncrementalAlterConfigs, func(t *testing.T, v int16) {
		s := serveAdmin(t, newAdminBroker())
		askAdmin[*kmsg.CreateTopicsResponse](t, s, createRequest(createTopic("a", 1, 1)), 7)
		str := kmsg.StringPtr
		const set, del, add, sub = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete, kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract
		type change = kmsg.IncrementalAlterConfigsRequestResourceConfig
		for _, c := range []struct {
			changes           []change
			code              int16
			retention, policy string
		}{
			{[]change{{Name: "retention.ms", Op: set, Value: str("9")}, {Name: "cleanup.policy", Op: add, Value: str("x,delete,y")}}, 0, "9", "delete,x,y"},
			{[]change{{Name: "cleanup.policy", Op: sub, Value: str("x,none,delete")}}, 0, "9", "y"},
			{[]change{{Name: "retention.ms", Op: del}, {Name: "cleanup.policy", Op: del}, {Name: "none", Op: del}}, 0, "100", "delete"},
			{[]change{{Name: "retention.ms", Op: add, Value: str("1")}}, kerr.INVALID_CONFIG, "100", "delete"},
			{[]change{{Name: "none", Op: sub, Value: str("1")}}, kerr.INVALID_CONFIG, "100", "delete"},
			{[]change{{Name: "retention.ms", Op: set}}, kerr.INVALID_REQUEST, "100", "delete"},
			{[]change{{Name: "retention.ms", Op: 9, Value: str("1")}}, kerr.INVALID_REQUEST, "100", "delete"},
			{[]change{{Name: "retention.ms", Op: set, Value: str("1")}, {Name: "retention.ms", Op: del}}, kerr.INVALID_REQUEST, "100", "delete"},
			{[]change{{Name: "bad", Op: set, Value: str("1")}}, kerr.INVALID_CONFIG, "100", "delete"},
		} {
			for _, only := range []bool{true, false} {
				before := describe(t, s, 4, kmsg.ConfigResourceTypeTopic, "a").Configs
				q := kmsg.NewPtrIncrementalAlterConfigsRequest()
				q.ValidateOnly = only
				q.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "a", Configs: c.changes}}
				got := askAdmin[*kmsg.IncrementalAlterConfigsResponse](t, s, q, v).Resources[0]
				if got.ErrorCode != c.code {
					t.Errorf("%+v: %+v, want %d", c.changes, got, c.code)
				}
				after := describe(t, s, 4, kmsg.ConfigResourceTypeTopic, "a").Configs
				want := []string{c.retention, c.policy}
				if only {
					want = []string{*before[0].Value, *before[1].Value}
				}
				if *after[0].Value != want[0] || *after[1].Value != want[1] {
					t.Errorf("%+v, only validated %v: %s %s", c.changes, only, *after[0].Value, *after[1].Value)
				}
			}
		}
		q := kmsg.NewPtrIncrementalAlterConfigsRequest()
		for _, name := range []string{"b", "a", "b"} {
			q.Resources = append(q.Resources, kmsg.IncrementalAlterConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: name})
		}
		for i, got := range askAdmin[*kmsg.IncrementalAlterConfigsResponse](t, s, q, v).Resources {
			if want := []int16{kerr.INVALID_REQUEST, 0, kerr.INVALID_REQUEST}[i]; got.ErrorCode != want {
				t.Errorf("answer %d: %+v, want %d", i, got, want)
			}
		}
	})
}

// Clients are told the name that a listener was asked for by.
func TestAdvertised(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	one, all := net.IPv4(127, 0, 0, 1), net.IPv4zero
	for _, c := range []struct {
		given, asked string
		bound        net.IP
		want         string
	}{
		{"", "127.0.0.1:0", one, "127.0.0.1:9000"},
		{"", "localhost:0", one, "localhost:9000"},
		{"", "[::1]:0", net.IPv6loopback, "[::1]:9000"},
		{"", ":0", all, net.JoinHostPort(machine, "9000")},
		{"", "0.0.0.0:0", all, net.JoinHostPort(machine, "9000")},
		{":7", "localhost:0", one, "localhost:7"},
		{":7", "0.0.0.0:0", all, net.JoinHostPort(machine, "7")},
		{"a.example:0", "127.0.0.1:0", one, "a.example:9000"},
		{"10.0.0.1:7", "localhost:0", one, "10.0.0.1:7"},
	} {
		host, port, err := advertised(c.given, c.asked, &net.TCPAddr{IP: c.bound, Port: 9000})
		if got := net.JoinHostPort(host, strconv.Itoa(int(port))); err != nil || got != c.want {
			t.Errorf("%q for %q: %s, want %s (%v)", c.given, c.asked, got, c.want, err)
		}
	}
}
