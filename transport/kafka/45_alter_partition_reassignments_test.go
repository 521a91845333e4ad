package kafka

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// moving asks what is on its way.
func moving(t *testing.T, s *Server, topics []kmsg.ListPartitionReassignmentsRequestTopic) []kmsg.ListPartitionReassignmentsResponseTopic {
	t.Helper()
	q := kmsg.NewPtrListPartitionReassignmentsRequest()
	q.Topics = topics
	r := askAdmin[*kmsg.ListPartitionReassignmentsResponse](t, s, q, 0)
	if r.ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
	return r.Topics
}

func TestReassignments(t *testing.T) {
	versionsOf(t, kmsg.AlterPartitionAssignments, func(t *testing.T, v int16) {
		b := newAdminBroker()
		s := serveAdmin(t, b)
		askAdmin[*kmsg.CreateTopicsResponse](t, s, createRequest(createTopic("a", 7, 1)), 7)
		q := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		q.AllowReplicationFactorChange = false
		q.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "a", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{
			{Partition: 0, Replicas: []int32{8}}, {Partition: 1}, {Partition: 2, Replicas: []int32{}}, {Partition: 3, Replicas: []int32{8, 8}},
			{Partition: 9, Replicas: []int32{8}}, {Partition: 5, Replicas: []int32{7, 8}},
		}}, {Topic: "none", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: 0, Replicas: []int32{8}}}}}
		want := []int16{0, kerr.NO_REASSIGNMENT_IN_PROGRESS, kerr.INVALID_REPLICA_ASSIGNMENT, kerr.INVALID_REPLICA_ASSIGNMENT, kerr.UNKNOWN_TOPIC_OR_PARTITION, kerr.INVALID_REPLICATION_FACTOR, kerr.UNKNOWN_TOPIC_OR_PARTITION}
		if v == 0 {
			want[5] = 0
		}
		var codes []int16
		r := askAdmin[*kmsg.AlterPartitionAssignmentsResponse](t, s, q, v)
		for _, topic := range r.Topics {
			for _, p := range topic.Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
		if !slices.Equal(codes, want) || r.ErrorCode != 0 {
			t.Errorf("codes %v, want %v", codes, want)
		}
		if on := moving(t, s, nil); len(on) != 1 || len(on[0].Partitions) != 1+int(1-v) || on[0].Partitions[0].AddingReplicas[0] != 8 || on[0].Partitions[0].RemovingReplicas[0] != 7 {
			t.Errorf("on their way: %+v", on)
		}
		if on := moving(t, s, []kmsg.ListPartitionReassignmentsRequestTopic{{Topic: "a", Partitions: []int32{1}}}); len(on) != 0 {
			t.Errorf("of partition 1: %+v", on)
		}
		q.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "a", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: 0}}}}
		if r = askAdmin[*kmsg.AlterPartitionAssignmentsResponse](t, s, q, v); r.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Errorf("back: %+v", r)
		}
		closed := serveAdmin(t, b, func(o *Options) { o.Authorize = true })
		if r = askAdmin[*kmsg.AlterPartitionAssignmentsResponse](t, closed, q, v); r.ErrorCode != kerr.CLUSTER_AUTHORIZATION_FAILED {
			t.Errorf("not allowed: %+v", r)
		}
		if l := askAdmin[*kmsg.ListPartitionReassignmentsResponse](t, closed, kmsg.NewPtrListPartitionReassignmentsRequest(), 0); l.ErrorCode != kerr.CLUSTER_AUTHORIZATION_FAILED {
			t.Errorf("not allowed: %+v", l)
		}
	})
}

func TestElectLeaders(t *testing.T) {
	versionsOf(t, kmsg.ElectLeaders, func(t *testing.T, v int16) {
		b := newAdminBroker()
		s := serveAdmin(t, b)
		askAdmin[*kmsg.CreateTopicsResponse](t, s, createRequest(createTopic("a", 2, 1)), 7)
		codes := func(s *Server, kind int8, topics ...kmsg.ElectLeadersRequestTopic) (all int16, each []int16) {
			q := kmsg.NewPtrElectLeadersRequest()
			q.ElectionType, q.Topics = kind, topics
			r := askAdmin[*kmsg.ElectLeadersResponse](t, s, q, v)
			for _, topic := range r.Topics {
				for _, p := range topic.Partitions {
					each = append(each, p.ErrorCode)
				}
			}
			return r.ErrorCode, each
		}
		both := kmsg.ElectLeadersRequestTopic{Topic: "a", Partitions: []int32{0, 1}}
		if _, got := codes(s, 0, both); !slices.Equal(got, []int16{kerr.ELECTION_NOT_NEEDED, 0}) {
			t.Errorf("two: %v", got)
		}
		if _, got := codes(s, 0); !slices.Equal(got, []int16{0}) {
			t.Errorf("all: %v", got)
		}
		if v >= 1 {
			if _, got := codes(s, 1, both); !slices.Equal(got, []int16{kerr.ELECTION_NOT_NEEDED, kerr.ELECTION_NOT_NEEDED}) {
				t.Errorf("unclean: %v", got)
			}
			if all, got := codes(s, 2, both); all != kerr.INVALID_REQUEST || !slices.Equal(got, []int16{kerr.INVALID_REQUEST, kerr.INVALID_REQUEST}) {
				t.Errorf("unknown: %d %v", all, got)
			}
		}
		closed := serveAdmin(t, b, func(o *Options) { o.Authorize = true })
		if _, got := codes(closed, 0, both); !slices.Equal(got, []int16{kerr.CLUSTER_AUTHORIZATION_FAILED, kerr.CLUSTER_AUTHORIZATION_FAILED}) {
			t.Errorf("not allowed: %v", got)
		}
	})
}

func TestDescribeLogDirs(t *testing.T) {
	versionsOf(t, kmsg.DescribeLogDirs, func(t *testing.T, v int16) {
		s := serveAdmin(t, newAdminBroker())
		r := askAdmin[*kmsg.DescribeLogDirsResponse](t, s, kmsg.NewPtrDescribeLogDirsRequest(), v)
		if len(r.Dirs) != 1 || r.Dirs[0].Dir != "/data" || len(r.Dirs[0].Topics) != 2 || len(r.Dirs[0].Topics[0].Partitions) != 2 {
			t.Fatalf("%+v", r)
		}
		if p := r.Dirs[0].Topics[0].Partitions[1]; p.Size != 6 || p.OffsetLag != 2 || p.IsFuture || v >= 4 && (r.Dirs[0].TotalBytes != 1000 || r.Dirs[0].UsableBytes != 10) {
			t.Errorf("%+v", r)
		}
		q := kmsg.NewPtrDescribeLogDirsRequest()
		q.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "a", Partitions: []int32{1, 5}}, {Topic: "none", Partitions: []int32{0}}}
		r = askAdmin[*kmsg.DescribeLogDirsResponse](t, s, q, v)
		if topics := r.Dirs[0].Topics; len(topics) != 1 || len(topics[0].Partitions) != 1 || topics[0].Partitions[0].Size != 6 {
			t.Errorf("of some: %+v", r)
		}
		r = askAdmin[*kmsg.DescribeLogDirsResponse](t, serveAdmin(t, newAdminBroker(), func(o *Options) { o.Authorize = true }), q, v)
		if len(r.Dirs) != 0 || v >= 3 && r.ErrorCode != kerr.CLUSTER_AUTHORIZATION_FAILED {
			t.Errorf("not allowed: %+v", r)
		}
	})
}
