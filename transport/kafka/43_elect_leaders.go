package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// The kinds of elections.
const (
	electPreferred int8 = iota
	electUnclean
)

// ElectLeaders, versions 0 to 2: the preferred replicas of partitions lead, those asked
// for or all where that is null; of all, those that lead already are not answered. A
// replica that lacks acknowledged records is never elected, so that an unclean election
// finds nobody. Needs Alter on the cluster.
func (c *call) electLeaders(q *kmsg.ElectLeadersRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.ElectLeadersResponse)
	ctx, cancel := c.within(q.TimeoutMillis)
	defer cancel()
	all := q.Topics == nil
	if all {
		for _, t := range c.broker().Topics() {
			topic := kmsg.ElectLeadersRequestTopic{Topic: t.Name}
			for n := range t.Partitions {
				topic.Partitions = append(topic.Partitions, int32(n))
			}
			q.Topics = append(q.Topics, topic)
		}
	}
	var refused error
	switch {
	case !c.allowed(kmsg.ACLOperationAlter, kmsg.ACLResourceTypeCluster, clusterName):
		refused = notForYouCluster()
	case q.ElectionType != electPreferred && q.ElectionType != electUnclean:
		refused = kerr.Errorf(kerr.INVALID_REQUEST, "election type %d is not known", q.ElectionType)
	}
	r.ErrorCode, _ = c.code(refused)
	for i := range q.Topics {
		t := kmsg.NewElectLeadersResponseTopic()
		t.Topic = q.Topics[i].Topic
		answers := make([]kmsg.ElectLeadersResponseTopicPartition, len(q.Topics[i].Partitions))
		each(len(answers), func(j int) {
			p := kmsg.NewElectLeadersResponseTopicPartition()
			p.Partition = q.Topics[i].Partitions[j]
			err := refused
			if err == nil {
				err = c.elect(ctx, q.ElectionType, t.Topic, p.Partition)
			}
			p.ErrorCode, p.ErrorMessage = c.code(err)
			answers[j] = p
		})
		for _, p := range answers {
			if !all || p.ErrorCode != kerr.ELECTION_NOT_NEEDED {
				t.Partitions = append(t.Partitions, p)
			}
		}
		if len(t.Partitions) > 0 {
			r.Topics = append(r.Topics, t)
		}
	}
	return r
}

// elect has one partition elect its leader.
func (c *call) elect(ctx context.Context, kind int8, topic string, number int32) error {
	if kind == electPreferred {
		return c.broker().ElectPreferred(ctx, topic, number)
	}
	t, ok := c.broker().Topic(topic)
	switch {
	case !ok || number < 0 || int(number) >= len(t.Partitions):
		return kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition %d of topic %q", number, topic)
	case t.Partitions[number].Leader >= 0:
		return kerr.Errorf(kerr.ELECTION_NOT_NEEDED, "node %d leads", t.Partitions[number].Leader)
	}
	return kerr.Errorf(kerr.ELIGIBLE_LEADERS_NOT_AVAILABLE, "only replicas with all acknowledged records are elected, and they elect their leader by themselves")
}
