package broker

import (
	"slices"

	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/transport/kafka"
)

// Topics lists all topics by name.
func (b *Broker) Topics() []kafka.Topic {
	topics := b.controller.Topics()
	out := make([]kafka.Topic, 0, len(topics))
	for i := range topics {
		out = append(out, b.describe(&topics[i]))
	}
	return out
}

// Topic finds a topic.
func (b *Broker) Topic(name string) (kafka.Topic, bool) {
	t, ok := b.controller.Topic(name)
	if !ok {
		return kafka.Topic{}, false
	}
	return b.describe(&t), true
}

// TopicByID finds a topic.
func (b *Broker) TopicByID(id kafka.TopicID) (kafka.Topic, bool) {
	name, ok := b.TopicName(id)
	if !ok {
		return kafka.Topic{}, false
	}
	return b.Topic(name)
}

// TopicName is the name of a topic.
func (b *Broker) TopicName(id kafka.TopicID) (string, bool) {
	topics := b.controller.Topics()
	i := slices.IndexFunc(topics, func(t replication.TopicState) bool { return t.ID == id })
	if i < 0 {
		return "", false
	}
	return topics[i].Name, true
}

// Leader tells who leads a partition.
func (b *Broker) Leader(topic string, number int32) (node, epoch int32) {
	r, err := b.router.Route(topic, number)
	if err != nil {
		return -1, -1
	}
	return leaderOf(r.Info())
}

func leaderOf(i replication.RouteInfo) (node, epoch int32) {
	if i.Leader == 0 {
		return -1, -1
	}
	return i.Leader, i.Epoch
}

// describe says where the partitions of a topic are.
func (b *Broker) describe(t *replication.TopicState) kafka.Topic {
	out := kafka.Topic{Name: t.Name, ID: t.ID, Internal: t.Internal, Partitions: make([]kafka.PartitionState, len(t.Partitions))}
	for i := range t.Partitions {
		p := &out.Partitions[i]
		p.Leader, p.Epoch = -1, -1
		r, err := b.router.Route(t.Name, int32(i))
		if err != nil {
			continue // it was deleted just now
		}
		info := r.Info()
		p.Leader, p.Epoch = leaderOf(info)
		for _, replica := range info.Replicas {
			p.Replicas = append(p.Replicas, replica.Node)
			if replica.InSync {
				p.InSync = append(p.InSync, replica.Node)
			}
			if replica.Node != b.opts.Self && !b.node.Reachable(replica.Node) {
				p.Offline = append(p.Offline, replica.Node)
			}
		}
	}
	return out
}
