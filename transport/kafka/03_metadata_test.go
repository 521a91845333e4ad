package kafka

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

func (b *dataBroker) CreateTopic(_ context.Context, n NewTopic, _ bool) (Topic, error) {
	if n.Name == "refused" {
		return Topic{}, kerr.Errorf(kerr.INVALID_REPLICATION_FACTOR, "no")
	}
	for range n.Partitions {
		b.topics[n.Name] = append(b.topics[n.Name], newDataPartition())
	}
	t, _ := b.Topic(n.Name)
	return t, nil
}

func askMetadata(t *testing.T, s *Server, version int16, create bool, names ...string) *kmsg.MetadataResponse {
	t.Helper()
	q := kmsg.NewPtrMetadataRequest()
	q.Topics, q.AllowAutoTopicCreation = []kmsg.MetadataRequestTopic{}, create
	for _, name := range names {
		q.Topics = append(q.Topics, kmsg.MetadataRequestTopic{Topic: &name})
	}
	return askAdmin[*kmsg.MetadataResponse](t, s, q, version)
}

// Every version tells of nodes and topics; who leads is a node that is listed.
func TestMetadata(t *testing.T) {
	down := newDataPartition()
	down.leader = 9
	s := serveAdmin(t, oneTopic(newDataPartition(), down))
	versionsOf(t, kmsg.Metadata, func(t *testing.T, version int16) {
		r := askMetadata(t, s, version, false, "t", "nobody", "a b", "t")
		if len(r.Brokers) != 2 || r.Brokers[1].Host != "eight" || r.Brokers[1].Port != 2 || version >= 1 && (r.Brokers[0].Rack != nil || *r.Brokers[1].Rack != "r") {
			t.Errorf("nodes %+v", r.Brokers)
		}
		if version >= 1 && r.ControllerID != dataSelf { // node 9 is not listed
			t.Errorf("controller %d", r.ControllerID)
		}
		if version >= 2 && *r.ClusterID != "cluster" {
			t.Errorf("cluster %q", *r.ClusterID)
		}
		if len(r.Topics) != 3 || *r.Topics[0].Topic != "t" || r.Topics[1].ErrorCode != kerr.UNKNOWN_TOPIC_OR_PARTITION || r.Topics[2].ErrorCode != kerr.INVALID_TOPIC_EXCEPTION {
			t.Fatalf("topics %+v", r.Topics)
		}
		p := r.Topics[0].Partitions
		if len(p) != 2 || p[0].Leader != dataSelf || p[0].ErrorCode != 0 || len(p[0].Replicas) != 2 || len(p[0].ISR) != 1 || version >= 7 && p[0].LeaderEpoch != 5 || version >= 5 && len(p[0].OfflineReplicas) != 1 {
			t.Errorf("partition %+v", p)
		}
		if p[1].Leader != -1 || p[1].ErrorCode != kerr.LEADER_NOT_AVAILABLE {
			t.Errorf("partition of a node that is down: %+v", p[1])
		}
		if version >= 10 && r.Topics[0].TopicID != (TopicID{1}) {
			t.Errorf("id %x", r.Topics[0].TopicID)
		}
		if all, want := len(askMetadata(t, s, version, false).Topics), map[bool]int{true: 1}[version == 0]; all != want {
			t.Errorf("an empty list: %d topics, want %d", all, want)
		}
		if version >= 1 {
			q := kmsg.NewPtrMetadataRequest()
			if all := askAdmin[*kmsg.MetadataResponse](t, s, q, version).Topics; len(all) != 1 {
				t.Errorf("null: %+v", all)
			}
		}
	})
}

// Topics are found by id where the version allows that.
func TestMetadataByID(t *testing.T) {
	s := serveAdmin(t, oneTopic(newDataPartition()))
	for version, want := range map[int16][2]int16{10: {kerr.INVALID_REQUEST, kerr.INVALID_REQUEST}, 12: {kerr.NONE, kerr.UNKNOWN_TOPIC_ID}} {
		q := kmsg.NewPtrMetadataRequest()
		name := ""
		q.Topics = []kmsg.MetadataRequestTopic{{TopicID: TopicID{1}, Topic: &name}, {TopicID: TopicID{2}, Topic: &name}}
		if version >= 12 {
			q.Topics[0].Topic, q.Topics[1].Topic = nil, nil
		}
		got := askAdmin[*kmsg.MetadataResponse](t, s, q, version).Topics
		if len(got) != 2 || got[0].ErrorCode != want[0] || got[1].ErrorCode != want[1] {
			t.Errorf("version %d: %+v", version, got)
		}
	}
}

// A topic is made when the client and the node allow it.
func TestMetadataCreates(t *testing.T) {
	for _, c := range []struct {
		node, client bool
		version      int16
		want         int16
	}{
		{true, true, 9, kerr.NONE}, {true, false, 3, kerr.NONE}, {true, false, 4, kerr.UNKNOWN_TOPIC_OR_PARTITION}, {false, true, 9, kerr.UNKNOWN_TOPIC_OR_PARTITION},
	} {
		s := serveAdmin(t, oneTopic(newDataPartition()), func(o *Options) { o.AutoCreateTopics = c.node })
		got := askMetadata(t, s, c.version, c.client, "new", "refused", "__consumer_offsets").Topics
		if got[0].ErrorCode != c.want || (c.want == kerr.NONE) != (len(got[0].Partitions) == 3) {
			t.Errorf("%+v: %+v", c, got[0])
		}
		if got[2].ErrorCode != kerr.UNKNOWN_TOPIC_OR_PARTITION || !got[2].IsInternal {
			t.Errorf("an internal topic: %+v", got[2])
		}
		if c.want == kerr.NONE && got[1].ErrorCode != kerr.INVALID_REPLICATION_FACTOR {
			t.Errorf("one that cannot be: %+v", got[1])
		}
	}
}

// Clients that ask are told what they may do.
func TestMetadataOperations(t *testing.T) {
	s := serveAdmin(t, oneTopic(newDataPartition()))
	q := kmsg.NewPtrMetadataRequest()
	q.IncludeClusterAuthorizedOperations, q.IncludeTopicAuthorizedOperations = true, true
	r := askAdmin[*kmsg.MetadataResponse](t, s, q, 8)
	if r.AuthorizedOperations != 1<<5|1<<9|1<<10|1<<11|1<<12|1<<7|1<<8 || r.Topics[0].AuthorizedOperations != 1<<3|1<<4|1<<5|1<<6|1<<7|1<<8|1<<10|1<<11 {
		t.Errorf("%b %b", r.AuthorizedOperations, r.Topics[0].AuthorizedOperations)
	}
	q.IncludeClusterAuthorizedOperations, q.IncludeTopicAuthorizedOperations = false, false
	if r := askAdmin[*kmsg.MetadataResponse](t, s, q, 8); r.AuthorizedOperations != -1<<31 || r.Topics[0].AuthorizedOperations != -1<<31 {
		t.Errorf("unasked: %d %d", r.AuthorizedOperations, r.Topics[0].AuthorizedOperations)
	}
}
