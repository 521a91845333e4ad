package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// OffsetFetch, versions 0 to 10, of which the last one gives topics by id. Every partition that is asked for is in the answer; one
// without an offset has -1 and no error, and so has one of a group that does not exist.
// Version 0, which Kafka kept elsewhere, is answered like version 1. Needs Describe on
// the group and on the topics; when all are asked for, the others are left out.
//
// There are no transactions, so offsets are always stable (RequireStable).
func (c *call) offsetFetch(q *kmsg.OffsetFetchRequest) kmsg.Response {
	if q.Version < 8 {
		return c.offsetFetchOne(q)
	}
	r := q.ResponseKind().(*kmsg.OffsetFetchResponse)
	part := *q
	part.Groups = nil
	for i := range q.Groups {
		for j := range q.Groups[i].Topics {
			c.nameFor(q.Version, &q.Groups[i].Topics[j].Topic, q.Groups[i].Topics[j].TopicID)
		}
		one := q.Groups[i]
		if c.mayUse(kmsg.ACLOperationDescribe, one.Group) {
			one.Topics = only(one.Topics, func(t *kmsg.OffsetFetchRequestGroupTopic) bool {
				return c.refuses(kmsg.ACLOperationDescribe, q.Version, t.Topic) == kerr.NONE
			})
			part.Groups = append(part.Groups, one)
		}
	}
	var taken []kmsg.OffsetFetchResponseGroup
	if len(part.Groups) > 0 {
		taken = c.coordinate(&part).(*kmsg.OffsetFetchResponse).Groups
	}
	for i := range q.Groups {
		one := kmsg.NewOffsetFetchResponseGroup()
		one.Group, one.ErrorCode = q.Groups[i].Group, groupDenied
		if len(taken) > 0 && c.mayUse(kmsg.ACLOperationDescribe, one.Group) {
			one, taken = taken[0], taken[1:]
			c.hideOffsets(q.Version, &q.Groups[i], &one)
		}
		r.Groups = append(r.Groups, one)
	}
	return r
}

// hideOffsets adds the topics that there are not and those that the client must not describe, as far as it asked for
// them, and takes them out where it asked for all.
func (c *call) hideOffsets(version int16, asked *kmsg.OffsetFetchRequestGroup, r *kmsg.OffsetFetchResponseGroup) {
	if asked.Topics == nil {
		r.Topics = only(r.Topics, func(t *kmsg.OffsetFetchResponseGroupTopic) bool {
			return c.mayTopic(kmsg.ACLOperationDescribe, t.Topic)
		})
		return
	}
	if r.ErrorCode != kerr.NONE {
		return
	}
	for i := range asked.Topics {
		t := &asked.Topics[i]
		code := c.refuses(kmsg.ACLOperationDescribe, version, t.Topic)
		if code == kerr.NONE {
			continue
		}
		denied := kmsg.NewOffsetFetchResponseGroupTopic()
		denied.Topic, denied.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			one := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			one.Partition, one.Offset, one.LeaderEpoch, one.ErrorCode = p, -1, -1, code
			one.Metadata = kmsg.StringPtr("")
			denied.Partitions = append(denied.Partitions, one)
		}
		r.Topics = append(r.Topics, denied)
	}
}

// offsetFetchOne answers the versions that ask for one group, by way of that which asks
// for many.
func (c *call) offsetFetchOne(q *kmsg.OffsetFetchRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.OffsetFetchResponse)
	many := kmsg.NewPtrOffsetFetchRequest()
	many.Version, many.RequireStable = 8, q.RequireStable
	asked := kmsg.NewOffsetFetchRequestGroup()
	asked.Group = q.Group
	if q.Topics != nil || q.Version < 2 {
		asked.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range q.Topics {
		one := kmsg.NewOffsetFetchRequestGroupTopic()
		one.Topic, one.Partitions = t.Topic, t.Partitions
		asked.Topics = append(asked.Topics, one)
	}
	many.Groups = []kmsg.OffsetFetchRequestGroup{asked}
	answer := c.offsetFetch(many).(*kmsg.OffsetFetchResponse).Groups[0]
	r.ErrorCode = answer.ErrorCode
	for i := range answer.Topics {
		topic := kmsg.NewOffsetFetchResponseTopic()
		topic.Topic = answer.Topics[i].Topic
		for _, p := range answer.Topics[i].Partitions {
			one := kmsg.NewOffsetFetchResponseTopicPartition()
			one.Partition, one.Offset, one.LeaderEpoch, one.Metadata, one.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			topic.Partitions = append(topic.Partitions, one)
		}
		r.Topics = append(r.Topics, topic)
	}
	if answer.ErrorCode != kerr.NONE && q.Version < 2 { // there is no other place for it
		r.Topics = failedOffsets(q, answer.ErrorCode)
	}
	return r
}

// failedOffsets gives all partitions that were asked for a code.
func failedOffsets(q *kmsg.OffsetFetchRequest, code int16) (topics []kmsg.OffsetFetchResponseTopic) {
	for i := range q.Topics {
		topic := kmsg.NewOffsetFetchResponseTopic()
		topic.Topic = q.Topics[i].Topic
		for _, p := range q.Topics[i].Partitions {
			one := kmsg.NewOffsetFetchResponseTopicPartition()
			one.Partition, one.Offset, one.LeaderEpoch, one.ErrorCode, one.Metadata = p, -1, -1, code, kmsg.StringPtr("")
			topic.Partitions = append(topic.Partitions, one)
		}
		topics = append(topics, topic)
	}
	return topics
}
