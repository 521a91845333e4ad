package broker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/transport/kafka"
)

// member joins a group, syncs, commits and leaves, as a client does that meets whatever
// the coordinator says. It returns what was acknowledged.
func (r *coordinatorRig) member(name string, commits int) (acknowledged int64) {
	var id string
	acknowledged = -1
	for tries := 0; tries < 50; tries++ {
		join := kmsg.NewPtrJoinGroupRequest()
		join.Version, join.Group, join.MemberID, join.ProtocolType = 5, name, id, "consumer"
		join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 30_000, 30_000
		join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{1}}}
		joined := r.insist(join).(*kmsg.JoinGroupResponse)
		if joined.ErrorCode == kerr.MEMBER_ID_REQUIRED {
			id = joined.MemberID
			continue
		}
		if joined.ErrorCode != kerr.NONE {
			id = ""
			continue
		}
		id = joined.MemberID
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, name, id, joined.Generation
		sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: id, MemberAssignment: []byte{7}}}
		if code := r.insist(sync).(*kmsg.SyncGroupResponse).ErrorCode; code != kerr.NONE {
			continue
		}
		for ; commits > 0; commits-- {
			q := commitRequest(name, "t", 0, acknowledged+1)
			q.MemberID, q.Generation = id, joined.Generation
			if code := r.insist(q).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; code != kerr.NONE {
				break
			}
			acknowledged++
		}
		if commits > 0 {
			continue
		}
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Version, leave.Group, leave.MemberID = 2, name, id
		r.insist(leave)
		return acknowledged
	}
	r.t.Errorf("group %s: the member does not get on", name)
	return acknowledged
}

// Whichever write fails, and however, no group is stuck, and what was acknowledged is in
// the log, whose reader goes on from there.
func TestGroupsWriteFails(t *testing.T) {
	faults := map[string]error{
		"busy": replication.ErrBusy, "ambiguous": replication.ErrAmbiguous, "kept": replication.ErrAmbiguous,
		"replicas": replication.ErrNotEnoughReplicas, "after": replication.ErrNotEnoughReplicasAfterAppend,
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := 0; ; at++ {
				log := newTestLog()
				log.kept = name == "kept"
				log.fault = func(n int) error {
					if n == at {
						return fault
					}
					return nil
				}
				r := newCoordinatorRig(t, log, nil)
				acknowledged := make([]int64, 3)
				var running sync.WaitGroup
				for i := range acknowledged {
					running.Go(func() { acknowledged[i] = r.member(fmt.Sprint("g", i), 4) })
				}
				running.Wait()
				r.stop()
				log.fault = nil
				again := newCoordinatorRig(t, log, nil)
				for i, want := range acknowledged {
					if got := again.offset(fmt.Sprint("g", i), "t", 0); got != want {
						t.Fatalf("write %d failed: group %d has %d, acknowledged was %d", at, i, got, want)
					}
				}
				again.stop()
				if t.Failed() || at >= log.appends {
					return
				}
			}
		})
	}
}

// Nothing is answered while the log is read but that it is being read, and a core is
// used in no epoch but its own.
func TestGroupsLoadAndEpochs(t *testing.T) {
	log := newTestLog()
	r := newCoordinatorRig(t, log, nil)
	r.insist(commitRequest("g", "t", 0, 7))
	log.lead(0)
	for r.refusal() != kerr.NOT_COORDINATOR {
		time.Sleep(time.Millisecond)
	}
	if a := r.ask(t.Context(), kafka.Client{}, commitRequest("g", "t", 0, 8)).(*kmsg.OffsetCommitResponse); a.Topics[0].Partitions[0].ErrorCode != kerr.NOT_COORDINATOR {
		t.Errorf("a commit elsewhere: code %d", a.Topics[0].Partitions[0].ErrorCode)
	}

	// Another node leads, and takes a commit.
	other := newCoordinatorRig(t, &testLog{epoch: 2, batches: log.batches, end: log.end, subs: map[chan<- struct{}]bool{}}, nil)
	other.insist(commitRequest("g", "t", 0, 9))
	other.stop()
	log.mu.Lock()
	log.batches, log.end, log.reading = other.log.batches, other.log.end, make(chan struct{})
	log.mu.Unlock()
	log.lead(3)
	for r.refusal() != kerr.COORDINATOR_LOAD_IN_PROGRESS {
		time.Sleep(time.Millisecond)
	}
	if a := r.ask(t.Context(), kafka.Client{}, commitRequest("g", "t", 0, 8)).(*kmsg.OffsetCommitResponse); a.Topics[0].Partitions[0].ErrorCode != kerr.COORDINATOR_LOAD_IN_PROGRESS {
		t.Errorf("a commit while the log is read: code %d", a.Topics[0].Partitions[0].ErrorCode)
	}
	close(log.reading)
	if got := r.offset("g", "t", 0); got != 9 {
		t.Errorf("the group has %d, what the other node took is 9", got)
	}

	// The epoch changes and the coordinator has not seen it.
	log.mu.Lock()
	log.epoch = 4
	log.mu.Unlock()
	r.insist(commitRequest("g", "t", 0, 10))
	if got := r.offset("g", "t", 0); got != 10 {
		t.Errorf("the group has %d", got)
	}
}

// Offsets of a deleted topic go, once: not those of another topic of its name, not even
// when the write that removes them fails.
func TestGroupsTopicsDeleted(t *testing.T) {
	for at := range 4 {
		log, topics := newTestLog(), &testTopics{changed: make(chan struct{})}
		topics.set(testTopic("t", 1, 1), testTopic("other", 2, 1))
		log.fault = func(n int) error {
			if n == at {
				return replication.ErrAmbiguous
			}
			return nil
		}
		r := newCoordinatorRig(t, log, topics)
		r.insist(commitRequest("g", "t", 0, 7))
		r.insist(commitRequest("g", "other", 0, 7))
		topics.set(testTopic("t", 3, 1), testTopic("other", 2, 1))
		r.signal()
		if got := r.offset("g", "t", 0); got != -1 {
			t.Errorf("fault %d: a new topic begins at %d", at, got)
		}
		r.insist(commitRequest("g", "t", 0, 1))
		log.lead(log.Epoch() + 1)
		if got, other := r.offset("g", "t", 0), r.offset("g", "other", 0); got != 1 || other != 7 {
			t.Errorf("fault %d: the group has %d and %d, committed are 1 and 7", at, got, other)
		}
		r.stop()
	}
}

// Offsets of a topic that was deleted while nobody coordinated are not those of the next
// topic of its name, and what that has stays when it is looked for late.
func TestGroupsTopicDeletedUnseen(t *testing.T) {
	log, topics := newTestLog(), &testTopics{changed: make(chan struct{})}
	topics.set(testTopic("t", 1, 1), testTopic("other", 2, 1))
	r := newCoordinatorRig(t, log, topics)
	r.insist(commitRequest("g", "t", 0, 7))
	r.insist(commitRequest("g", "other", 0, 7))
	r.stop()
	topics.set(testTopic("t", 3, 1), testTopic("other", 2, 1))
	r = newCoordinatorRig(t, log, topics)
	if got, other := r.offset("g", "t", 0), r.offset("g", "other", 0); got != -1 || other != 7 {
		t.Errorf("the group begins at %d of a new topic and at %d of an old one", got, other)
	}
	r.insist(commitRequest("g", "t", 0, 1))
	r.stop()
	topics.set(testTopic("t", 1, 1), testTopic("other", 2, 1)) // as a node has it that is behind
	r = newCoordinatorRig(t, log, topics)
	if got := r.offset("g", "t", 0); got != -1 {
		t.Errorf("the group has %d of the old topic", got)
	}
	topics.set(testTopic("t", 3, 1), testTopic("other", 2, 1))
	r.signal()
	if got := r.offset("g", "t", 0); got != 1 {
		t.Errorf("the group has %d of the new topic, committed is 1", got)
	}
	r.stop()
}

// What was decided in one epoch is not written in another, whenever that begins.
func TestGroupsEpochBetween(t *testing.T) {
	log := newTestLog()
	r := newCoordinatorRig(t, log, nil)
	r.insist(commitRequest("g", "t", 0, 7))
	end := log.HighWatermark()
	log.mu.Lock()
	log.fault = func(int) error { log.epoch++; return nil } // before the append
	log.mu.Unlock()
	if code := codeOf(r.ask(t.Context(), kafka.Client{}, commitRequest("g", "t", 0, 8))); code != kerr.NOT_COORDINATOR {
		t.Errorf("a commit as the epoch changes: code %d", code)
	}
	if now := log.HighWatermark(); now != end {
		t.Errorf("%d records were written in the next epoch", now-end)
	}
}

// An answer waits for its own write.
func TestGroupsAnswerWaits(t *testing.T) {
	log := newTestLog()
	r := newCoordinatorRig(t, log, nil)
	r.insist(commitRequest("first", "t", 0, 7))
	log.mu.Lock()
	log.held = make(chan func(replication.AppendResult), 2)
	log.mu.Unlock()
	one := r.submit(t.Context(), kafka.Client{}, commitRequest("first", "t", 0, 8))
	answerOne := <-log.held
	two := r.submit(t.Context(), kafka.Client{}, commitRequest("second", "t", 0, 8))
	answerTwo := <-log.held
	answerOne(replication.AppendResult{})
	if r := one.await(t.Context()).(*kmsg.OffsetCommitResponse); r.Topics[0].Partitions[0].ErrorCode != kerr.NONE {
		t.Errorf("what is written is told code %d", r.Topics[0].Partitions[0].ErrorCode)
	}
	answerTwo(replication.AppendResult{Err: replication.ErrAmbiguous})
	if code := codeOf(two.await(t.Context())); code != kerr.COORDINATOR_NOT_AVAILABLE {
		t.Errorf("what may be written is told code %d", code)
	}
}

// A topic that is deleted while another node leads is that node's to forget.
func TestGroupsTopicDeletedElsewhere(t *testing.T) {
	log, topics := newTestLog(), &testTopics{changed: make(chan struct{})}
	topics.set(testTopic("t", 1, 1))
	r := newCoordinatorRig(t, log, topics)
	r.insist(commitRequest("g", "t", 0, 7))
	log.lead(0)
	for r.refusal() != kerr.NOT_COORDINATOR {
		time.Sleep(time.Millisecond)
	}
	topics.set(testTopic("t", 2, 1))
	other := newCoordinatorRig(t, &testLog{epoch: 2, batches: log.batches, end: log.end, subs: map[chan<- struct{}]bool{}}, topics)
	other.insist(commitRequest("g", "t", 0, 9))
	other.stop()
	log.mu.Lock()
	log.batches, log.end = other.log.batches, other.log.end
	log.mu.Unlock()
	log.lead(3)
	if got := r.offset("g", "t", 0); got != 9 {
		t.Errorf("the group has %d, the other node took 9", got)
	}
}

// Whoever asks and goes is not waited for, and Close answers everybody.
func TestGroupsWaitersEnd(t *testing.T) {
	r := newCoordinatorRig(t, newTestLog(), nil)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType = 3, "g", "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 30_000, 30_000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{1}}}
	first := r.insist(join).(*kmsg.JoinGroupResponse)
	ctx, cancel := context.WithCancel(t.Context())
	another := *join
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		r.ask(ctx, kafka.Client{}, &another) // waits for the first member to join again
	}()
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID, beat.Generation = "g", first.MemberID, first.Generation
	for r.insist(beat).(*kmsg.HeartbeatResponse).ErrorCode != kerr.REBALANCE_IN_PROGRESS {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-gone
	third := *join
	answer := make(chan kmsg.Response, 1)
	go func() { answer <- r.ask(t.Context(), kafka.Client{}, &third) }()
	r.insist(beat)
	r.stop()
	if code := codeOf(<-answer); code != kerr.NOT_COORDINATOR {
		t.Errorf("who waits when the node closes is told code %d", code)
	}
}
