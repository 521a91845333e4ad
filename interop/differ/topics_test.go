package differ

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func metadataScenarios() []scenario {
	return []scenario{
		{"metadata", playMetadata},
		{"metadata-ids", playMetadataIDs},
		{"metadata-names", playMetadataNames},
	}
}

func topicScenarios() []scenario {
	return []scenario{
		{"create", playCreate},
		{"create-bad", playCreateBad},
		{"create-configs", playCreateConfigs},
		{"create-collision", playCreateCollision},
		{"delete", playDelete},
		{"partitions", playPartitions},
	}
}

// onlyOwn leaves out other scenarios' topics.
func onlyOwn(p *play, r *kmsg.MetadataResponse) {
	own := r.Topics[:0]
	for _, t := range r.Topics {
		if t.Topic != nil && strings.HasPrefix(*t.Topic, p.name()) {
			own = append(own, t)
		}
	}
	r.Topics = own
}

func playMetadata(p *play) {
	p.topic(p.name("a"), 3)
	p.topic(p.name("b"), 1)
	for _, v := range p.versions(kmsg.Metadata) {
		p.askVersion("two", metadataOf(p.name("a"), p.name("b")), v)
		p.askVersion("twice", metadataOf(p.name("a"), p.name("a")), v)
		if v > 0 {
			p.askVersion("none", metadataOf(), v)
		}
		q := metadataOf(p.name("missing"))
		p.askVersion("missing", q, max(v, 4))
		q = metadataOf(p.name("a"))
		q.IncludeTopicAuthorizedOperations, q.IncludeClusterAuthorizedOperations = true, true
		p.askVersion("operations", q, v)
		all := kmsg.NewPtrMetadataRequest() // null is all, and in version 0 none is
		r, err := p.quietly(all, v)
		if err != nil {
			p.note("all", lost(err))
			continue
		}
		onlyOwn(p, r.(*kmsg.MetadataResponse))
		p.note(fmt.Sprint("all v", v), p.names.lines(r)...)
	}
}

func playMetadataIDs(p *play) {
	p.topic(p.name(), 2)
	for _, v := range p.versions(kmsg.Metadata) {
		if v < 10 {
			continue
		}
		byID := func(id [16]byte, name *string) *kmsg.MetadataRequest {
			q := kmsg.NewPtrMetadataRequest()
			t := kmsg.NewMetadataRequestTopic()
			t.TopicID, t.Topic = id, name
			q.Topics = append(q.Topics, t)
			return q
		}
		p.askVersion("id", byID(p.id(p.name()), nil), v)
		p.askVersion("unknown id", byID([16]byte{1, 2, 3}, nil), v)
		p.askVersion("neither", byID([16]byte{}, nil), v)
		p.askVersion("id and name", byID(p.id(p.name()), ptr(p.name())), v)
		p.askVersion("unknown id and name", byID([16]byte{9}, ptr(p.name())), v)
	}
}

func playMetadataNames(p *play) {
	for _, name := range []string{"", ".", "..", "a/b", "a b", "ä", strings.Repeat("x", 249), strings.Repeat("x", 250), "__differ", "a\x00b"} {
		q := metadataOf(name)
		p.askVersion(fmt.Sprintf("name %.10q of %d", name, len(name)), q, p.newest(kmsg.Metadata, -1))
		q = metadataOf(name)
		p.askVersion(fmt.Sprintf("name %.10q of %d", name, len(name)), q, p.newest(kmsg.Metadata, 5))
	}
}

func createOf(names ...string) *kmsg.CreateTopicsRequest {
	q := kmsg.NewPtrCreateTopicsRequest()
	q.TimeoutMillis = 10000
	for _, name := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, 1, 1
		q.Topics = append(q.Topics, t)
	}
	return q
}

// playCreate leaves out the settings that answers have from version 5 on, which
// other scenarios are about.
func playCreate(p *play) {
	for _, v := range p.versions(kmsg.CreateTopics) {
		create := func(label string, q *kmsg.CreateTopicsRequest) {
			r := p.askCreated(label, q, v)
			if r != nil && !q.ValidateOnly {
				for _, t := range r.Topics {
					p.names.id(t.TopicID, t.Topic)
				}
			}
		}
		name := p.name(v)
		q := createOf(name)
		q.ValidateOnly = true
		create("only validate", q)
		q = createOf(name, name+"-second")
		q.Topics[1].NumPartitions = 4
		create("good", q)
		create("again", createOf(name))
		q = createOf(name)
		q.ValidateOnly = true
		create("validate again", q)
		create("twice in one", createOf(name+"-twice", name+"-twice", name+"-once"))
		q = createOf(name + "-defaults")
		q.Topics[0].NumPartitions, q.Topics[0].ReplicationFactor = -1, -1
		create("defaults", q)
		q = createOf(name + "-notime")
		q.TimeoutMillis = 0
		create("no time", q)
		create("none", createOf())
	}
}

// askCreated is askVersion without the settings in the answer.
func (p *play) askCreated(label string, q *kmsg.CreateTopicsRequest, version int16) *kmsg.CreateTopicsResponse {
	label = fmt.Sprintf("%s v%d", label, version)
	r, err := p.quietly(q, version)
	if err != nil {
		p.note(label, lost(err))
		p.dial()
		return nil
	}
	created := r.(*kmsg.CreateTopicsResponse)
	for i := range created.Topics {
		t := &created.Topics[i]
		if len(t.Configs) > 0 || t.Configs == nil && t.ErrorCode != 0 {
			t.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
		}
		if t.TopicID != ([16]byte{}) {
			p.names.id(t.TopicID, t.Topic)
		}
	}
	p.note(label, p.names.lines(created)...)
	return created
}

func playCreateBad(p *play) {
	assign := func(partitions ...[]int32) []kmsg.CreateTopicsRequestTopicReplicaAssignment {
		var all []kmsg.CreateTopicsRequestTopicReplicaAssignment
		for i, replicas := range partitions {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = int32(i), replicas
			all = append(all, a)
		}
		return all
	}
	type topic = kmsg.CreateTopicsRequestTopic
	for _, c := range []struct {
		what   string
		change func(t *topic)
	}{
		{"no name", func(t *topic) { t.Topic = "" }},
		{"bad name", func(t *topic) { t.Topic = "a/b" }},
		{"dot", func(t *topic) { t.Topic = "." }},
		{"long name", func(t *topic) { t.Topic = strings.Repeat("y", 250) }},
		{"internal name", func(t *topic) { t.Topic = "__cluster_metadata" }},
		{"no partitions", func(t *topic) { t.NumPartitions = 0 }},
		{"negative partitions", func(t *topic) { t.NumPartitions = -2 }},
		{"no replicas", func(t *topic) { t.ReplicationFactor = 0 }},
		{"negative replicas", func(t *topic) { t.ReplicationFactor = -2 }},
		{"too many replicas", func(t *topic) { t.ReplicationFactor = 3 }},
		{"assigned and counted", func(t *topic) { t.ReplicaAssignment = assign([]int32{1}) }},
		{"assigned", func(t *topic) {
			t.NumPartitions, t.ReplicationFactor, t.ReplicaAssignment = -1, -1, assign([]int32{1}, []int32{1})
		}},
		{"assigned to nobody", func(t *topic) {
			t.NumPartitions, t.ReplicationFactor, t.ReplicaAssignment = -1, -1, assign([]int32{})
		}},
		{"assigned to a stranger", func(t *topic) {
			t.NumPartitions, t.ReplicationFactor, t.ReplicaAssignment = -1, -1, assign([]int32{7})
		}},
		{"assigned twice", func(t *topic) {
			t.NumPartitions, t.ReplicationFactor, t.ReplicaAssignment = -1, -1, assign([]int32{1, 1})
		}},
		{"assigned with a gap", func(t *topic) {
			t.NumPartitions, t.ReplicationFactor, t.ReplicaAssignment = -1, -1, assign([]int32{1}, []int32{1})
			t.ReplicaAssignment[1].Partition = 5
		}},
	} {
		for _, v := range []int16{p.newest(kmsg.CreateTopics, 3), p.newest(kmsg.CreateTopics, -1)} {
			q := createOf(p.name("-", strings.ReplaceAll(c.what, " ", "-"), v))
			c.change(&q.Topics[0])
			p.askCreated(c.what, q, v)
		}
	}
}

func playCreateConfigs(p *play) {
	for i, c := range [][2]string{
		{"no.such.setting", "1"}, {"retention.ms", "abc"}, {"retention.ms", "-2"}, {"retention.ms", "3600000"}, {"cleanup.policy", "nothing"},
		{"cleanup.policy", "delete"}, {"cleanup.policy", "compact"}, {"cleanup.policy", "compact,delete"}, {"max.message.bytes", "-1"}, {"segment.bytes", "1"},
		{"segment.bytes", "1048576"}, {"compression.type", "producer"}, {"compression.type", "bad"}, {"min.insync.replicas", "0"},
		{"min.insync.replicas", "2"}, {"message.timestamp.type", "LogAppendTime"}, {"message.timestamp.type", "Never"},
		{"flush.messages", "1"}, {"retention.bytes", "-1"}, {"", "x"}, {"unclean.leader.election.enable", "maybe"}, {"min.cleanable.dirty.ratio", "2"},
		{"message.format.version", "0.10.0.0"}, {"message.timestamp.difference.max.ms", "1000"}, {"message.downconversion.enable", "false"},
	} {
		q := createOf(p.name(i))
		entry := kmsg.NewCreateTopicsRequestTopicConfig()
		entry.Name, entry.Value = c[0], &c[1]
		q.Topics[0].Configs = append(q.Topics[0].Configs, entry)
		p.askCreated(fmt.Sprint(c), q, p.newest(kmsg.CreateTopics, -1))
	}
	q := createOf(p.name("null"))
	entry := kmsg.NewCreateTopicsRequestTopicConfig()
	entry.Name = "retention.ms"
	q.Topics[0].Configs = append(q.Topics[0].Configs, entry)
	p.askCreated("null", q, p.newest(kmsg.CreateTopics, -1))
}

// playCreateCollision makes topics whose names are the same to metrics.
func playCreateCollision(p *play) {
	v := p.newest(kmsg.CreateTopics, -1)
	p.askCreated("dot", createOf(p.name(".a")), v)
	p.askCreated("line", createOf(p.name("_a")), v)
	p.askCreated("both", createOf(p.name(".b"), p.name("_b")), v)
}

func deleteOf(version int16, names ...string) *kmsg.DeleteTopicsRequest {
	q := kmsg.NewPtrDeleteTopicsRequest()
	q.TimeoutMillis = 10000
	for _, name := range names {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		q.Topics = append(q.Topics, t)
		q.TopicNames = append(q.TopicNames, name)
	}
	return q
}

func playDelete(p *play) {
	for _, v := range p.versions(kmsg.DeleteTopics) {
		name := p.name(v)
		p.topic(name, 2)
		p.askVersion("both", deleteOf(v, name, name+"-missing"), v)
		until(p, "the end of "+name, func() kmsg.Request { return metadataOf(name) },
			func(r *kmsg.MetadataResponse) bool { return r.Topics[0].ErrorCode == 3 })
		p.askVersion("again", deleteOf(v, name), v)
		p.askVersion("none", deleteOf(v), v)
		p.askVersion("bad name", deleteOf(v, "a/b"), v)
		p.topic(name, 1)
		p.askVersion("twice", deleteOf(v, name, name), v)
		if v < 6 {
			continue
		}
		p.topic(name+"-id", 1)
		q := deleteOf(v)
		t := kmsg.NewDeleteTopicsRequestTopic()
		q.Topics = append(q.Topics, t)
		p.askVersion("neither", q, v)
		q.Topics[0].TopicID = [16]byte{7}
		p.askVersion("unknown id", q, v)
		q.Topics[0].TopicID, q.Topics[0].Topic = p.id(name+"-id"), ptr(name+"-id")
		p.askVersion("id and name", q, v)
		q.Topics[0].Topic = nil
		p.askVersion("id", q, v)
	}
}

func playPartitions(p *play) {
	for _, v := range p.versions(kmsg.CreatePartitions) {
		name := p.name(v)
		p.topic(name, 2)
		ask := func(label string, topic string, count int32, more ...func(*kmsg.CreatePartitionsRequest)) {
			q := kmsg.NewPtrCreatePartitionsRequest()
			q.TimeoutMillis = 10000
			t := kmsg.NewCreatePartitionsRequestTopic()
			t.Topic, t.Count = topic, count
			q.Topics = append(q.Topics, t)
			for _, change := range more {
				change(q)
			}
			p.askVersion(label, q, v)
		}
		type request = kmsg.CreatePartitionsRequest
		assign := func(replicas ...int32) func(*request) {
			return func(q *request) {
				a := kmsg.NewCreatePartitionsRequestTopicAssignment()
				a.Replicas = replicas
				q.Topics[0].Assignment = append(q.Topics[0].Assignment, a)
			}
		}
		ask("fewer", name, 1)
		ask("as many", name, 2)
		ask("none", name, 0)
		ask("negative", name, -1)
		ask("missing", name+"-missing", 3)
		ask("validate", name, 3, func(q *request) { q.ValidateOnly = true })
		ask("more", name, 3)
		p.awaitTopic(name, 3)
		ask("twice", name, 5, func(q *request) { q.Topics = append(q.Topics, q.Topics[0]) })
		ask("too few assigned", name, 5, assign(1))
		ask("to a stranger", name, 4, assign(9))
		ask("to nobody", name, 4, assign())
		ask("assigned", name, 4, assign(1))
		p.awaitTopic(name, 4)
		p.ask("afterwards", metadataOf(name))
	}
}
