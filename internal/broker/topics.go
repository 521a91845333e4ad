package broker

import (
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/transport/kafka"
)

// Topics lists all topics by name.
func (b *Broker) Topics() []kafka.Topic {
	topics := b.controller.Topics()
	out := make([]kafka.Topic, 0, len(topics))
	for i := range topics {
		if !hidden(topics[i].Name) {
			out = append(out, b.describe(&topics[i]))
		}
	}
	return out
}

// hidden says that clients know nothing of a topic.
func hidden(name string) bool { return name == replication.MetadataTopic }

// Topic finds a topic.
func (b *Broker) Topic(name string) (kafka.Topic, bool) {
	t, ok := b.controller.Topic(name)
	if !ok || hidden(name) {
		return kafka.Topic{}, false
	}
	return b.describe(&t), true
}

// TopicByID finds a topic.
func (b *Broker) TopicByID(id kafka.TopicID) (kafka.Topic, bool) {
	t, ok := b.controller.TopicByID(id)
	if !ok || hidden(t.Name) {
		return kafka.Topic{}, false
	}
	return b.describe(&t), true
}

// TopicName is the name of a topic.
func (b *Broker) TopicName(id kafka.TopicID) (string, bool) {
	t, ok := b.controller.TopicByID(id)
	if !ok || hidden(t.Name) {
		return "", false
	}
	return t.Name, true
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
		if len(p.InSync) == 0 && p.Leader >= 0 { // it has not told yet
			p.InSync = []int32{p.Leader}
		}
	}
	return out
}
