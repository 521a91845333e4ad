package kafka

import (
	"context"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// CreateTopics, versions 0 to 7, of which 2 to 7 are advertised. Topics are made side by
// side and answered in the order of the request, one that is named twice once. Counts of
// -1 are the node's defaults in all versions (KIP-464), and answers have the settings
// from version 5 (KIP-525) and the id from version 7 on.
//
// The timeout says when the answer is due, not whether the topic is made: one that was not
// there in time is answered REQUEST_TIMED_OUT and comes.
func (c *call) createTopics(q *kmsg.CreateTopicsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.CreateTopicsResponse)
	ctx, cancel := c.within(q.TimeoutMillis)
	defer cancel()
	twice := repeated(q.Topics, func(t *kmsg.CreateTopicsRequestTopic) string { return t.Topic })
	var wanted []*kmsg.CreateTopicsRequestTopic
	seen := map[string]bool{}
	for i := range q.Topics {
		if t := &q.Topics[i]; !seen[t.Topic] {
			seen[t.Topic] = true
			wanted = append(wanted, t)
		}
	}
	r.Topics = make([]kmsg.CreateTopicsResponseTopic, len(wanted))
	each(len(wanted), func(i int) {
		answer := kmsg.NewCreateTopicsResponseTopic()
		answer.Topic, answer.NumPartitions, answer.ReplicationFactor = wanted[i].Topic, -1, -1
		var err error
		if twice[answer.Topic] {
			err = kerr.Errorf(kerr.INVALID_REQUEST, "the topic is named more than once")
		} else {
			err = c.createTopic(ctx, wanted[i], q.ValidateOnly, &answer)
		}
		answer.ErrorCode, answer.ErrorMessage = c.code(err)
		r.Topics[i] = answer
	})
	return r
}

// createTopic makes one topic.
func (c *call) createTopic(ctx context.Context, q *kmsg.CreateTopicsRequestTopic, validateOnly bool, answer *kmsg.CreateTopicsResponseTopic) error {
	if !c.mayOnTopic(kmsg.ACLOperationCreate, q.Topic) {
		return notForYou()
	}
	config, err := givenConfig(q.Configs)
	if err != nil {
		return err
	}
	t := NewTopic{Name: q.Topic, Partitions: int(q.NumPartitions), Replicas: int(q.ReplicationFactor),
		ClampReplicas: c.conn.server.opts.ClampReplicationFactor, Config: config}
	if len(q.ReplicaAssignment) == 0 && t.Partitions == -1 {
		t.Partitions = c.conn.server.opts.DefaultPartitions
	}
	made, err := c.broker().CreateTopic(ctx, t, validateOnly)
	if err != nil {
		return err
	}
	answer.TopicID = made.ID
	if !c.allowed(kmsg.ACLOperationDescribeConfigs, kmsg.ACLResourceTypeTopic, q.Topic) {
		answer.ConfigErrorCode = kerr.TOPIC_AUTHORIZATION_FAILED
		return nil
	}
	answer.NumPartitions = int32(len(made.Partitions))
	if len(made.Partitions) > 0 {
		answer.ReplicationFactor = int16(min(len(made.Partitions[0].Replicas), math.MaxInt16))
	}
	for _, e := range c.broker().NewTopicConfig(config) {
		s := kmsg.NewCreateTopicsResponseTopicConfig()
		s.Name, s.Value, s.ReadOnly, s.IsSensitive = e.Name, shown(&e), e.ReadOnly, e.Sensitive
		s.Source = int8(topicSource(&e))
		answer.Configs = append(answer.Configs, s)
	}
	return nil
}

// givenConfig takes the settings out of a request.
func givenConfig(given []kmsg.CreateTopicsRequestTopicConfig) (map[string]string, error) {
	config := make(map[string]string, len(given))
	for i := range given {
		if given[i].Value == nil {
			return nil, kerr.Errorf(kerr.INVALID_CONFIG, "%s has no value", given[i].Name)
		}
		config[given[i].Name] = *given[i].Value
	}
	return config, nil
}

// shown is a setting's value as clients may see it.
func shown(e *ConfigEntry) *string {
	if e.Sensitive {
		return nil
	}
	return &e.Value
}

// topicSource says where a topic's setting comes from.
func topicSource(e *ConfigEntry) kmsg.ConfigSource {
	if e.Set {
		return kmsg.ConfigSourceDynamicTopicConfig
	}
	return kmsg.ConfigSourceDefaultConfig
}
