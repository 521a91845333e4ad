package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// DeleteTopics, versions 0 to 6, of which 1 to 6 are advertised. From version 6 on a
// topic is given by its name or its id. Topics are deleted side by side and answered in
// the order of the request, one that is named twice once. Internal topics are not deleted.
//
// The timeout says when the answer is due, not whether the topic is deleted.
func (c *call) deleteTopics(q *kmsg.DeleteTopicsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.DeleteTopicsResponse)
	ctx, cancel := c.within(q.TimeoutMillis)
	defer cancel()
	if q.Version < 6 {
		q.Topics = nil
		for i := range q.TopicNames {
			q.Topics = append(q.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &q.TopicNames[i]})
		}
	}
	work := c.deletions(q.Topics)
	r.Topics = make([]kmsg.DeleteTopicsResponseTopic, len(work))
	each(len(work), func(i int) {
		d := &work[i]
		if d.err == nil {
			d.err = c.broker().DeleteTopic(ctx, *d.topic, d.id)
		}
		answer := kmsg.NewDeleteTopicsResponseTopic()
		answer.Topic, answer.TopicID = d.topic, d.id
		if answer.Topic == nil && q.Version < 6 {
			answer.Topic = new(string)
		}
		answer.ErrorCode, answer.ErrorMessage = c.code(d.err)
		r.Topics[i] = answer
	})
	return r
}

// deletion is a topic that is to be deleted, or the reason why it is not.
type deletion struct {
	topic *string
	id    TopicID
	err   error
}

// deletions says what to do about each topic of a request.
func (c *call) deletions(topics []kmsg.DeleteTopicsRequestTopic) []deletion {
	type key struct {
		name  string
		named bool
		id    TopicID
	}
	keyOf := func(t *kmsg.DeleteTopicsRequestTopic) key {
		if t.Topic == nil {
			return key{id: t.TopicID}
		}
		return key{name: *t.Topic, named: true, id: t.TopicID}
	}
	twice := repeated(topics, keyOf)
	answered := map[key]bool{}
	byID := map[TopicID]bool{}
	for i := range topics {
		byID[topics[i].TopicID] = true
	}
	var out []deletion
	for i := range topics {
		t, k := &topics[i], keyOf(&topics[i])
		if answered[k] {
			continue
		}
		answered[k] = true
		d := deletion{topic: t.Topic, id: t.TopicID}
		switch {
		case t.Topic == nil && t.TopicID == TopicID{}:
			d.err = kerr.Errorf(kerr.INVALID_REQUEST, "a topic has neither name nor id")
		case t.Topic != nil && t.TopicID != TopicID{}:
			d.err = kerr.Errorf(kerr.INVALID_REQUEST, "a topic has a name and an id: give one of them")
		case twice[k] && t.Topic != nil:
			d.err = topicTwice()
		case twice[k]:
			d.err = kerr.Errorf(kerr.INVALID_REQUEST, "the topic's id is given more than once")
		case t.Topic == nil:
			c.resolveID(&d)
		default:
			c.resolveName(&d, byID)
		}
		out = append(out, d)
	}
	return out
}

// resolveID finds the topic that is given by its id. Who may not see it is not told its
// name.
func (c *call) resolveID(d *deletion) {
	name, ok := c.broker().TopicName(d.id)
	switch {
	case !ok:
		d.err = kerr.Errorf(kerr.UNKNOWN_TOPIC_ID, "there is no topic of this id")
		return
	case !c.mayOnTopic(kmsg.ACLOperationDelete, name):
		d.err = notForYou()
		if !c.allowed(kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, name) {
			return
		}
	}
	d.topic = &name
}

// resolveName finds the topic that is given by its name. byID are those that are given by
// their id. Who may not see it is not told whether it is there.
func (c *call) resolveName(d *deletion, byID map[TopicID]bool) {
	whole := c.allowed(kmsg.ACLOperationDelete, kmsg.ACLResourceTypeCluster, clusterName)
	t, ok := c.broker().Topic(*d.topic)
	switch {
	case !whole && !c.allowed(kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, *d.topic):
		d.err = notForYou()
	case !ok:
		d.err = kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic of this name")
	case !whole && !c.allowed(kmsg.ACLOperationDelete, kmsg.ACLResourceTypeTopic, *d.topic):
		d.err = notForYou()
	case byID[t.ID] && t.ID != TopicID{}:
		d.id = t.ID
		d.err = kerr.Errorf(kerr.INVALID_REQUEST, "the topic is given by its id too")
	default:
		d.id = t.ID
	}
}
