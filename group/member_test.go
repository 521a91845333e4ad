package group

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

func beatOf(t *testing.T, m *Member) *kmsg.ConsumerGroupHeartbeatRequest {
	t.Helper()
	q, ok := m.Heartbeat().(*kmsg.ConsumerGroupHeartbeatRequest)
	if !ok {
		t.Fatal("not a heartbeat")
	}
	return q
}

func answerOf(code int16, epoch int32, partitions ...int32) *kmsg.ConsumerGroupHeartbeatResponse {
	r := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	r.ErrorCode, r.MemberEpoch, r.HeartbeatIntervalMillis = code, epoch, 250
	if partitions != nil {
		a := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
		one := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
		one.TopicID, one.Partitions = TopicID{1}, partitions
		a.Topics = append(a.Topics, one)
		r.Assignment = &a
	}
	return r
}

func TestMemberSaysWhatChanged(t *testing.T) {
	m := NewMember(MemberOptions{Group: "g", ID: "m", Topics: []string{"t"}, RebalanceTimeout: time.Minute})
	q := beatOf(t, m)
	if q.MemberEpoch != 0 || q.SubscribedTopicNames == nil || q.Topics == nil || len(q.Topics) != 0 || q.RebalanceTimeoutMillis != 60_000 {
		t.Errorf("it joins with %+v", q)
	}
	if lost, final, err := m.Heard(answerOf(kerr.NONE, 1, 0, 1)); lost || final || err != nil {
		t.Fatal(lost, final, err)
	}
	if len(m.Target()) != 2 || m.Interval() != 250*time.Millisecond || m.Epoch() != 1 {
		t.Errorf("target %v, interval %v, epoch %d", m.Target(), m.Interval(), m.Epoch())
	}
	if q = beatOf(t, m); q.SubscribedTopicNames != nil || q.Topics != nil || q.MemberEpoch != 1 {
		t.Errorf("nothing has changed, and it says %+v", q)
	}
	m.Hold([]TopicPartition{{TopicID{1}, 0}, {TopicID{1}, 1}})
	if !m.Changed() {
		t.Error("there is nothing to tell")
	}
	if q = beatOf(t, m); len(q.Topics) != 1 || len(q.Topics[0].Partitions) != 2 || q.SubscribedTopicNames != nil {
		t.Errorf("it holds two partitions and says %+v", q)
	}
	m.Unheard()
	if q = beatOf(t, m); len(q.Topics) != 1 || q.SubscribedTopicNames == nil {
		t.Errorf("after a lost answer it says %+v", q)
	}
}

func TestMemberLoses(t *testing.T) {
	for _, c := range []struct {
		code        int16
		lost, final bool
	}{
		{kerr.UNKNOWN_MEMBER_ID, true, false}, {kerr.FENCED_MEMBER_EPOCH, true, false}, {kerr.FENCED_INSTANCE_ID, true, true},
		{kerr.INVALID_REGULAR_EXPRESSION, true, true}, {kerr.UNRELEASED_INSTANCE_ID, false, false}, {kerr.COORDINATOR_NOT_AVAILABLE, false, false},
	} {
		m := NewMember(MemberOptions{Group: "g", ID: "m", Topics: []string{"t"}})
		beatOf(t, m)
		if _, _, err := m.Heard(answerOf(kerr.NONE, 3, 0)); err != nil {
			t.Fatal(err)
		}
		m.Hold([]TopicPartition{{TopicID{1}, 0}})
		beatOf(t, m)
		lost, final, err := m.Heard(answerOf(c.code, 0))
		if lost != c.lost || final != c.final || err == nil {
			t.Errorf("code %d: lost %v, final %v, %v", c.code, lost, final, err)
		}
		q := beatOf(t, m)
		if q.SubscribedTopicNames == nil || (q.MemberEpoch == 0) != c.lost || (len(q.Topics) == 0) != c.lost || (len(m.Target()) == 0) != c.lost {
			t.Errorf("code %d: then it says %+v", c.code, q)
		}
	}
}

func TestMemberOffsets(t *testing.T) {
	m := NewMember(MemberOptions{Group: "g", ID: "m"})
	a, b := TopicID{1}, TopicID{2}
	q := m.Commit([]Position{{TopicPartition{a, 0}, 5, -1}, {TopicPartition{b, 1}, 6, -1}, {TopicPartition{a, 2}, 7, -1}}).(*kmsg.OffsetCommitRequest)
	if len(q.Topics) != 2 || len(q.Topics[0].Partitions) != 2 || q.Topics[0].TopicID != a || q.Version < 10 {
		t.Errorf("it commits %+v", q.Topics)
	}
	r := q.ResponseKind().(*kmsg.OffsetCommitResponse)
	r.Topics = []kmsg.OffsetCommitResponseTopic{{TopicID: a, Partitions: []kmsg.OffsetCommitResponseTopicPartition{{Partition: 0}, {Partition: 2, ErrorCode: kerr.STALE_MEMBER_EPOCH}}}}
	if stale, err := m.Committed(r, map[TopicID]string{a: "of-a"}); !stale || err == nil || !strings.Contains(err.Error(), "of-a/2") {
		t.Errorf("stale %v, %v", stale, err)
	}
	r.Topics[0].Partitions[1].ErrorCode = kerr.NONE
	if stale, err := m.Committed(r, nil); stale || err != nil {
		t.Errorf("stale %v, %v", stale, err)
	}
	f := m.Fetch([]TopicPartition{{a, 0}, {a, 1}}).(*kmsg.OffsetFetchRequest).ResponseKind().(*kmsg.OffsetFetchResponse)
	if _, _, err := m.Fetched(f); err == nil {
		t.Error("an answer without a group was taken")
	}
	f.Groups = []kmsg.OffsetFetchResponseGroup{{Group: "g", Topics: []kmsg.OffsetFetchResponseGroupTopic{{TopicID: a, Partitions: []kmsg.OffsetFetchResponseGroupTopicPartition{
		{Partition: 0, Offset: 9}, {Partition: 1, Offset: -1}}}}}}
	positions, stale, err := m.Fetched(f)
	if len(positions) != 1 || positions[0].Topic != a || positions[0].Offset != 9 || stale || err != nil {
		t.Errorf("%v, %v, %v", positions, stale, err)
	}
}
