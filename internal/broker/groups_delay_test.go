package broker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// The process stands still for longer than members may be silent. Who is heard last, after
// it went on, is a member as well as who is heard first.
func TestGroupsMembersOutliveADelay(t *testing.T) {
	r := newCoordinatorRig(t, newTestLog(), nil)
	names := []string{"anna", "bert"}
	epochs := map[string]int32{}
	beat := func(name string, joins bool) {
		t.Helper()
		q := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		q.Version, q.Group, q.MemberID, q.MemberEpoch = 1, "g", name, epochs[name]
		if joins {
			q.RebalanceTimeoutMillis, q.SubscribedTopicNames, q.Topics = 300_000, []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		}
		a := r.insist(q).(*kmsg.ConsumerGroupHeartbeatResponse)
		if a.ErrorCode != kerr.NONE {
			t.Fatalf("%s is told %d", name, a.ErrorCode)
		}
		epochs[name] = a.MemberEpoch
	}
	for _, name := range names {
		beat(name, true)
	}
	for _, name := range names {
		beat(name, false)
	}
	r.ahead.Add(int64(5 * time.Minute))
	for _, name := range names {
		beat(name, false)
	}
}
