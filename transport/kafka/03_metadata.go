package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// autoCreateTimeout bounds how long a topic that is made by itself is waited for.
const autoCreateTimeout = 10 * time.Second

// Metadata, versions 0 to 12. Topics are named, or given by id from version 12 on; null
// is all of them, and so is none in version 0.
//
// A topic that is not there is made when the request and Options allow it, before the
// answer. Nodes that are known to be down are not listed, and who leads is listed or is none.
// The controller that is named is listed too; every node takes requests for it.
func (c *call) metadata(q *kmsg.MetadataRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.MetadataResponse)
	b := c.broker()
	nodes := b.Nodes(c.conn.listener.opts.Name)
	r.ControllerID = b.Self()
	live := make(map[int32]bool, len(nodes))
	for i := range nodes {
		n := kmsg.NewMetadataResponseBroker()
		n.NodeID, n.Host, n.Port, n.Rack = nodes[i].ID, nodes[i].Host, nodes[i].Port, nodes[i].rack()
		r.Brokers = append(r.Brokers, n)
		live[n.NodeID] = true
	}
	if at := b.Controller(); live[at] {
		r.ControllerID = at
	}
	r.ClusterID = kmsg.StringPtr(b.ClusterID())
	m := &metadata{call: c, request: q, live: live}
	switch {
	case q.Topics == nil, q.Version == 0 && len(q.Topics) == 0:
		m.every()
	case !m.given():
		return invalidMetadata(q)
	}
	r.Topics = m.out
	if q.IncludeClusterAuthorizedOperations {
		r.AuthorizedOperations = c.operations(kmsg.ACLResourceTypeCluster, clusterName)
	}
	return r
}

// metadata is an answer about topics in the making.
type metadata struct {
	*call
	request *kmsg.MetadataRequest
	live    map[int32]bool // nodes that the answer lists
	out     []kmsg.MetadataResponseTopic
}

// every tells of all topics that the client may see.
func (m *metadata) every() {
	for _, t := range m.broker().Topics() {
		if m.describable(t.Name) {
			m.topic(&t)
		}
	}
}

func (m *metadata) describable(topic string) bool {
	return m.allowed(kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, topic)
}

// given tells of the topics that the request gives: by id if there is any id in it.
// It returns false when the version of the request cannot give them so.
func (m *metadata) given() bool {
	byID := false
	for i := range m.request.Topics {
		q := &m.request.Topics[i]
		if m.request.Version < 12 && (q.Topic == nil || q.TopicID != TopicID{}) {
			return false
		}
		byID = byID || q.TopicID != TopicID{}
	}
	seen := make(map[string]bool, len(m.request.Topics))
	ids := make(map[TopicID]bool)
	for i := range m.request.Topics {
		q := &m.request.Topics[i]
		switch {
		case byID && q.TopicID != TopicID{} && !ids[q.TopicID]:
			ids[q.TopicID] = true
			m.byID(q.TopicID)
		case !byID && q.Topic != nil && !seen[*q.Topic]:
			seen[*q.Topic] = true
			m.byName(*q.Topic)
		}
	}
	return true
}

// invalidMetadata answers to topics that the version of the request cannot give.
func invalidMetadata(q *kmsg.MetadataRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.MetadataResponse)
	r.ControllerID = -1
	m := &metadata{request: q}
	for i := range q.Topics {
		name := ""
		if q.Topics[i].Topic != nil {
			name = *q.Topics[i].Topic
		}
		m.refuse(kerr.INVALID_REQUEST, &name, q.Topics[i].TopicID)
	}
	r.Topics = m.out
	return r
}

func (m *metadata) refuse(code int16, name *string, id TopicID) {
	t := kmsg.NewMetadataResponseTopic()
	t.ErrorCode, t.Topic, t.TopicID = code, name, id
	t.IsInternal = name != nil && isInternalName(*name)
	m.out = append(m.out, t)
}

func (m *metadata) byID(id TopicID) {
	t, ok := m.broker().TopicByID(id)
	switch {
	case !ok:
		m.refuse(kerr.UNKNOWN_TOPIC_ID, nil, id)
	case !m.describable(t.Name): // an id tells nobody anything
		m.refuse(kerr.TOPIC_AUTHORIZATION_FAILED, nil, id)
	default:
		m.topic(&t)
	}
}

func (m *metadata) byName(name string) {
	if !m.describable(name) { // it is not told whether there is such a topic
		m.refuse(kerr.TOPIC_AUTHORIZATION_FAILED, &name, TopicID{})
		return
	}
	t, ok := m.broker().Topic(name)
	switch {
	case ok:
		m.topic(&t)
	case !isTopicName(name):
		m.refuse(kerr.INVALID_TOPIC_EXCEPTION, &name, TopicID{})
	case !m.creates() || isInternalName(name):
		m.refuse(kerr.UNKNOWN_TOPIC_OR_PARTITION, &name, TopicID{})
	case !m.mayOnTopic(kmsg.ACLOperationCreate, name):
		m.refuse(kerr.TOPIC_AUTHORIZATION_FAILED, &name, TopicID{})
	default:
		m.create(name)
	}
}

// creates says whether topics are made. Requests could not say before version 4.
func (m *metadata) creates() bool {
	return m.conn.server.opts.AutoCreateTopics && (m.request.AllowAutoTopicCreation || m.request.Version < 4)
}

// create makes a topic and tells of it.
func (m *metadata) create(name string) {
	ctx, cancel := context.WithTimeout(m.ctx, autoCreateTimeout)
	defer cancel()
	topic := NewTopic{Name: name, Partitions: m.conn.server.opts.DefaultPartitions, Replicas: -1, ClampReplicas: true}
	t, err := m.broker().CreateTopic(ctx, topic, false)
	code, _ := m.code(err)
	switch code {
	case kerr.NONE:
		m.topic(&t)
	case kerr.TOPIC_ALREADY_EXISTS, kerr.REQUEST_TIMED_OUT: // clients ask again
		m.refuse(kerr.LEADER_NOT_AVAILABLE, &name, TopicID{})
	default:
		m.refuse(code, &name, TopicID{})
	}
}

// topic tells of a topic that is there.
func (m *metadata) topic(t *Topic) {
	r := kmsg.NewMetadataResponseTopic()
	r.Topic, r.TopicID, r.IsInternal = kmsg.StringPtr(t.Name), t.ID, t.Internal
	r.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, len(t.Partitions))
	for i := range t.Partitions {
		r.Partitions = append(r.Partitions, m.partition(int32(i), &t.Partitions[i]))
	}
	if m.request.IncludeTopicAuthorizedOperations {
		r.AuthorizedOperations = m.operations(kmsg.ACLResourceTypeTopic, t.Name)
	}
	m.out = append(m.out, r)
}

func (m *metadata) partition(number int32, p *PartitionState) kmsg.MetadataResponseTopicPartition {
	r := kmsg.NewMetadataResponseTopicPartition()
	r.Partition, r.Leader, r.LeaderEpoch = number, p.Leader, p.Epoch
	r.Replicas, r.ISR, r.OfflineReplicas = p.Replicas, p.InSync, p.Offline
	if !m.live[p.Leader] { // none, or one that clients of this listener cannot reach
		r.Leader, r.ErrorCode = -1, kerr.LEADER_NOT_AVAILABLE
	}
	return r
}
