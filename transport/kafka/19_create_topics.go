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
	wanted, twice := once(q.Topics, func(t *kmsg.CreateTopicsRequestTopic) string { return t.Topic })
	r.Topics = make([]kmsg.CreateTopicsResponseTopic, len(wanted))
	each(len(wanted), func(i int) {
		answer := kmsg.NewCreateTopicsResponseTopic()
		answer.Topic, answer.NumPartitions, answer.ReplicationFactor = wanted[i].Topic, -1, -1
		var err error
		if twice[answer.Topic] {
			err = topicTwice()
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
	if t.Assignments, err = assignments(q); err != nil {
		return err
	}
	if t.Assignments == nil && t.Partitions == -1 {
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

// assignments are the nodes that a request gives for each partition, nil if it does not.
func assignments(q *kmsg.CreateTopicsRequestTopic) ([][]int32, error) {
	n := len(q.ReplicaAssignment)
	switch {
	case n == 0:
		return nil, nil
	case q.ReplicationFactor != -1:
		return nil, kerr.Errorf(kerr.INVALID_REQUEST, "nodes are given and a replication factor of %d: it must be -1 then", q.ReplicationFactor)
	case q.NumPartitions != -1:
		return nil, kerr.Errorf(kerr.INVALID_REQUEST, "nodes are given and a count of %d partitions: it must be -1 then", q.NumPartitions)
	}
	out := make([][]int32, n)
	for i := range q.ReplicaAssignment {
		a := &q.ReplicaAssignment[i]
		switch {
		case a.Partition < 0 || int(a.Partition) >= n:
			return nil, kerr.Errorf(kerr.INVALID_REPLICA_ASSIGNMENT, "nodes are given for %d partitions, one of which is %d: they are numbered from 0 on without gaps", n, a.Partition)
		case out[a.Partition] != nil:
			return nil, kerr.Errorf(kerr.INVALID_REPLICA_ASSIGNMENT, "nodes are given for partition %d twice", a.Partition)
		case len(a.Replicas) == 0:
			return nil, kerr.Errorf(kerr.INVALID_REPLICA_ASSIGNMENT, "no nodes are given for partition %d", a.Partition)
		}
		out[a.Partition] = a.Replicas
	}
	return out, nil
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
