package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// CreatePartitions, versions 0 to 3. Topics are extended side by side and answered in the
// order of the request, one that is named twice once. Internal topics are not extended.
//
// The timeout says when the answer is due, not whether the topic is extended.
func (c *call) createPartitions(q *kmsg.CreatePartitionsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.CreatePartitionsResponse)
	ctx, cancel := c.within(q.TimeoutMillis)
	defer cancel()
	wanted, twice := once(q.Topics, func(t *kmsg.CreatePartitionsRequestTopic) string { return t.Topic })
	r.Topics = make([]kmsg.CreatePartitionsResponseTopic, len(wanted))
	each(len(wanted), func(i int) {
		answer := kmsg.NewCreatePartitionsResponseTopic()
		answer.Topic = wanted[i].Topic
		var err error
		if twice[answer.Topic] {
			err = topicTwice()
		} else {
			err = c.extendTopic(ctx, wanted[i], q.ValidateOnly)
		}
		answer.ErrorCode, answer.ErrorMessage = c.code(err)
		r.Topics[i] = answer
	})
	return r
}

// extendTopic extends one topic.
func (c *call) extendTopic(ctx context.Context, q *kmsg.CreatePartitionsRequestTopic, validateOnly bool) error {
	if !c.allowed(kmsg.ACLOperationAlter, kmsg.ACLResourceTypeTopic, q.Topic) {
		return notForYou()
	}
	t, ok := c.broker().Topic(q.Topic)
	if !ok {
		return kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic %q", q.Topic)
	}
	now := len(t.Partitions)
	if int(q.Count) <= now {
		return kerr.Errorf(kerr.INVALID_PARTITIONS, "topic %q has %d partitions, and %d are not more", q.Topic, now, q.Count)
	}
	var nodes [][]int32
	if q.Assignment != nil {
		if more := int(q.Count) - now; len(q.Assignment) != more {
			return kerr.Errorf(kerr.INVALID_REPLICA_ASSIGNMENT, "nodes are given for %d partitions, and %d are to be made", len(q.Assignment), more)
		}
		for i := range q.Assignment {
			nodes = append(nodes, q.Assignment[i].Replicas)
		}
	}
	return c.broker().AddPartitions(ctx, q.Topic, int(q.Count), nodes, validateOnly)
}
