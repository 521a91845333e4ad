package differ

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func configScenarios() []scenario {
	return []scenario{
		{"configs-describe", playDescribeConfigs},
		{"configs-incremental", playIncremental},
		{"configs-alter", playAlterConfigs},
	}
}

// portable are settings that every broker has to have, since programs ask for them,
// and of which the default is the same.
var portable = []string{
	"cleanup.policy", "compression.type", "delete.retention.ms", "max.message.bytes", "message.timestamp.type",
	"retention.bytes", "retention.ms",
}

func describeOf(kind kmsg.ConfigResourceType, name string, settings []string) *kmsg.DescribeConfigsRequest {
	q := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, settings
	q.Resources = append(q.Resources, r)
	return q
}

// askPortable notes an answer without the settings that a broker may have or not.
func (p *play) askPortable(label string, q *kmsg.DescribeConfigsRequest, v int16) {
	label = fmt.Sprintf("%s v%d", label, v)
	answer, err := p.quietly(q, v)
	if err != nil {
		p.note(label, lost(err))
		p.dial()
		return
	}
	r := answer.(*kmsg.DescribeConfigsResponse)
	for i := range r.Resources {
		kept := r.Resources[i].Configs[:0]
		for _, c := range r.Resources[i].Configs {
			if slices.Contains(portable, c.Name) {
				kept = append(kept, c)
			}
		}
		r.Resources[i].Configs = kept
	}
	p.note(label, p.names.lines(r)...)
}

func playDescribeConfigs(p *play) {
	const topic, broker = kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	p.topic(p.name(), 1, "max.message.bytes", "5000000")
	for _, v := range p.versions(kmsg.DescribeConfigs) {
		p.askPortable("all", describeOf(topic, p.name(), nil), v)
		p.askPortable("none", describeOf(topic, p.name(), []string{}), v)
		p.askPortable("some", describeOf(topic, p.name(), []string{"retention.ms", "cleanup.policy", "no.such.setting"}), v)
		p.askPortable("missing", describeOf(topic, p.name("missing"), nil), v)
		p.askPortable("bad name", describeOf(topic, "a/b", nil), v)
		p.askPortable("no name", describeOf(topic, "", nil), v)
		p.askPortable("a number as a broker", describeOf(broker, "1", []string{"no.such.setting"}), v)
		p.askPortable("a stranger", describeOf(broker, "77", nil), v)
		p.askPortable("no broker", describeOf(broker, "x", nil), v)
		p.askPortable("any broker", describeOf(broker, "", nil), v)
		p.askPortable("unknown kind", describeOf(99, "x", nil), v)
		if v >= 1 {
			q := describeOf(topic, p.name(), []string{"retention.ms", "segment.bytes"})
			q.IncludeSynonyms = true
			p.askPortable("synonyms", q, v)
		}
		q := describeOf(topic, p.name(), []string{"retention.ms"})
		q.Resources = append(q.Resources, q.Resources[0])
		p.askPortable("twice", q, v)
	}
}

// settings notes what a topic has.
func (p *play) settings(topic string) {
	r := must[*kmsg.DescribeConfigsResponse](p, describeOf(kmsg.ConfigResourceTypeTopic, topic, portable))
	var lines []string
	for _, c := range r.Resources[0].Configs {
		lines = append(lines, fmt.Sprint(c.Name, " ", or(c.Value, "null"), " ", c.Source))
	}
	p.note("settings of "+topic, lines...)
}

func playIncremental(p *play) {
	const set, unset, add, subtract = 0, 1, 2, 3
	for _, v := range p.versions(kmsg.IncrementalAlterConfigs) {
		name := p.name(v)
		p.topic(name, 1)
		entry := func(op kmsg.IncrementalAlterConfigOp, key string, value *string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Name, c.Op, c.Value = key, op, value
			return c
		}
		type config = kmsg.IncrementalAlterConfigsRequestResourceConfig
		ask := func(label, topic string, validate bool, configs ...config) {
			q := kmsg.NewPtrIncrementalAlterConfigsRequest()
			r := kmsg.NewIncrementalAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName, r.Configs = kmsg.ConfigResourceTypeTopic, topic, configs
			q.Resources, q.ValidateOnly = append(q.Resources, r), validate
			p.askVersion(label, q, v)
			if strings.HasPrefix(topic, name) && topic == name {
				p.settled(name, label)
			}
		}
		ask("validate", name, true, entry(set, "retention.ms", ptr("3600000")))
		ask("set", name, false, entry(set, "retention.ms", ptr("3600000")), entry(set, "max.message.bytes", ptr("2000000")))
		ask("unset", name, false, entry(unset, "max.message.bytes", nil))
		ask("unset what is not set", name, false, entry(unset, "segment.bytes", nil))
		ask("add to no list", name, false, entry(add, "retention.ms", ptr("1")))
		ask("add", name, false, entry(add, "cleanup.policy", ptr("compact")))
		ask("add again", name, false, entry(add, "cleanup.policy", ptr("compact")))
		ask("subtract", name, false, entry(subtract, "cleanup.policy", ptr("delete")))
		ask("subtract what is not there", name, false, entry(subtract, "cleanup.policy", ptr("delete")))
		ask("unknown setting", name, false, entry(set, "no.such.setting", ptr("1")))
		ask("unset unknown", name, false, entry(unset, "no.such.setting", nil))
		ask("bad value", name, false, entry(set, "retention.ms", ptr("abc")))
		ask("bad value and good", name, false, entry(set, "retention.ms", ptr("7200000")), entry(set, "segment.bytes", ptr("0")))
		ask("null", name, false, entry(set, "retention.ms", nil))
		ask("twice", name, false, entry(set, "retention.ms", ptr("1000000")), entry(set, "retention.ms", ptr("2000000")))
		ask("unknown operation", name, false, entry(9, "retention.ms", ptr("1")))
		ask("nothing", name, false)
		ask("missing topic", name+"-missing", false, entry(set, "retention.ms", ptr("1")))
		ask("no topic", "", false, entry(set, "retention.ms", ptr("1")))
	}
}

// settled notes the settings once changes are seen, which may take a moment.
func (p *play) settled(topic, after string) {
	want := map[string]string{"set": "3600000"}[after]
	if want != "" {
		until(p, "the setting", func() kmsg.Request { return describeOf(kmsg.ConfigResourceTypeTopic, topic, []string{"retention.ms"}) },
			func(r *kmsg.DescribeConfigsResponse) bool { return or(r.Resources[0].Configs[0].Value, "") == want })
	}
	if after == "set" || after == "nothing" {
		p.settings(topic)
	}
}

func playAlterConfigs(p *play) {
	for _, v := range p.versions(kmsg.AlterConfigs) {
		name := p.name(v)
		p.topic(name, 1, "max.message.bytes", "5000000")
		ask := func(label, topic string, validate bool, pairs ...string) {
			q := kmsg.NewPtrAlterConfigsRequest()
			r := kmsg.NewAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
			for i := 0; i+1 < len(pairs); i += 2 {
				c := kmsg.NewAlterConfigsRequestResourceConfig()
				c.Name, c.Value = pairs[i], &pairs[i+1]
				r.Configs = append(r.Configs, c)
			}
			q.Resources, q.ValidateOnly = append(q.Resources, r), validate
			p.askVersion(label, q, v)
		}
		ask("validate", name, true, "retention.ms", "3600000")
		ask("bad", name, false, "retention.ms", "x")
		ask("unknown", name, false, "no.such.setting", "x")
		ask("missing", name+"-missing", false, "retention.ms", "1")
		ask("set", name, false, "retention.ms", "3600000")
		until(p, "the setting", func() kmsg.Request {
			return describeOf(kmsg.ConfigResourceTypeTopic, name, []string{"retention.ms"})
		}, func(r *kmsg.DescribeConfigsResponse) bool {
			return or(r.Resources[0].Configs[0].Value, "") == "3600000"
		})
		p.settings(name) // the other setting is back at its default
	}
}
