package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeConfigs, versions 0 to 4, of which 1 to 4 are advertised. Topics and this node
// have settings; a node that is named "" is all nodes, of which nothing is set. Names of
// settings that are not there are left out, and no names are all of them.
//
// Settings of groups, of client metrics and of loggers are refused.
func (c *call) describeConfigs(q *kmsg.DescribeConfigsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for i := range q.Resources {
		resource := &q.Resources[i]
		answer := kmsg.NewDescribeConfigsResponseResource()
		answer.ResourceType, answer.ResourceName = resource.ResourceType, resource.ResourceName
		entries, err := c.configOf(resource.ResourceType, resource.ResourceName)
		answer.ErrorCode, answer.ErrorMessage = c.code(err)
		for j := range entries {
			if len(resource.ConfigNames) == 0 || slices.Contains(resource.ConfigNames, entries[j].Name) {
				answer.Configs = append(answer.Configs, describeConfig(q, resource.ResourceType, &entries[j]))
			}
		}
		r.Resources = append(r.Resources, answer)
	}
	return r
}

// configOf lists the settings of a resource.
func (c *call) configOf(kind kmsg.ConfigResourceType, name string) ([]ConfigEntry, error) {
	if err := c.checkConfigAccess(kmsg.ACLOperationDescribeConfigs, kind, name); err != nil {
		return nil, err
	}
	if kind == kmsg.ConfigResourceTypeTopic {
		return c.broker().TopicConfig(name)
	}
	if err := c.checkNodeName(name); err != nil || name == "" {
		return nil, err
	}
	return c.conn.server.nodeConfig(), nil
}

// describeConfig describes a setting.
func describeConfig(q *kmsg.DescribeConfigsRequest, kind kmsg.ConfigResourceType, e *ConfigEntry) kmsg.DescribeConfigsResponseResourceConfig {
	s := kmsg.NewDescribeConfigsResponseResourceConfig()
	s.Name, s.Value, s.ReadOnly, s.IsSensitive = e.Name, shown(e), e.ReadOnly, e.Sensitive
	s.Source, s.ConfigType = topicSource(e), e.Type
	if kind == kmsg.ConfigResourceTypeBroker && e.Set {
		s.Source = kmsg.ConfigSourceStaticBrokerConfig
	}
	s.IsDefault = s.Source == kmsg.ConfigSourceDefaultConfig
	if q.IncludeDocumentation {
		s.Documentation = &e.Doc
	}
	if !q.IncludeSynonyms {
		return s
	}
	add := func(name string, value *string, source kmsg.ConfigSource) {
		y := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		y.Name, y.Value, y.Source = name, value, source
		s.ConfigSynonyms = append(s.ConfigSynonyms, y)
	}
	if e.Set {
		add(e.Name, s.Value, s.Source)
	}
	fallback := e.Default
	switch {
	case kind == kmsg.ConfigResourceTypeBroker && fallback != "":
		add(e.Name, &fallback, kmsg.ConfigSourceDefaultConfig)
	case kind == kmsg.ConfigResourceTypeTopic && e.NodeName != "":
		add(e.NodeName, &fallback, kmsg.ConfigSourceDefaultConfig)
	}
	return s
}
