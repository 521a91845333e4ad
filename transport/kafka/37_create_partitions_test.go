package kafka

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

func TestCreatePartitions(t *testing.T) {
	versionsOf(t, kmsg.CreatePartitions, func(t *testing.T, v int16) {
		b := newAdminBroker()
		s := serveAdmin(t, b)
		askAdmin[*kmsg.CreateTopicsResponse](t, s, createRequest(createTopic("a", 2, 1), createTopic("b", 2, 1)), 7)
		extend := func(name string, count int32, nodes ...int32) kmsg.CreatePartitionsRequestTopic {
			q := kmsg.CreatePartitionsRequestTopic{Topic: name, Count: count}
			for _, n := range nodes {
				q.Assignment = append(q.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: []int32{n}})
			}
			return q
		}
		q := kmsg.NewPtrCreatePartitionsRequest()
		q.Topics = []kmsg.CreatePartitionsRequestTopic{
			extend("none", 3), extend("a", 4, 8, 7), extend("b", 2), extend("twice", 1), extend("twice", 1),
		}
		want := []int16{kerr.UNKNOWN_TOPIC_OR_PARTITION, 0, kerr.INVALID_PARTITIONS, kerr.INVALID_REQUEST}
		for _, only := range []bool{true, false} {
			q.ValidateOnly = only
			r := askAdmin[*kmsg.CreatePartitionsResponse](t, s, q, v)
			var codes []int16
			for _, got := range r.Topics {
				codes = append(codes, got.ErrorCode)
			}
			if !slices.Equal(codes, want) {
				t.Errorf("codes %v, want %v", codes, want)
			}
			a, _ := b.Topic("a")
			if n := len(a.Partitions); only != (n == 2) || !only && (n != 4 || a.Partitions[2].Replicas[0] != 8) {
				t.Errorf("validate only %v: %+v", only, a.Partitions)
			}
		}
		q.Topics = []kmsg.CreatePartitionsRequestTopic{extend("b", 4, 7)}
		if r := askAdmin[*kmsg.CreatePartitionsResponse](t, s, q, v); r.Topics[0].ErrorCode != kerr.INVALID_REPLICA_ASSIGNMENT {
			t.Errorf("nodes for one of two: %+v", r.Topics)
		}
		r := askAdmin[*kmsg.CreatePartitionsResponse](t, serveAdmin(t, b, func(o *Options) { o.Authorize = true }), q, v)
		if r.Topics[0].ErrorCode != kerr.TOPIC_AUTHORIZATION_FAILED {
			t.Errorf("not allowed: %+v", r.Topics)
		}
	})
}
