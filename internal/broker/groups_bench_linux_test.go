package broker

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/transport/kafka"
)

// BenchmarkGroupsHeartbeat is what 1,000 groups of one member cost, each of which beats
// every 3 seconds, as part of one core.
func BenchmarkGroupsHeartbeat(b *testing.B) {
	r := newCoordinatorRig(b, newTestLog(), nil)
	const groups = 1_000
	beats := make([]*kmsg.HeartbeatRequest, groups)
	for i := range beats {
		name := fmt.Sprint("group-", i)
		join := kmsg.NewPtrJoinGroupRequest()
		join.Version, join.Group, join.ProtocolType = 3, name, "consumer"
		join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 1_800_000, 30_000
		join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{1}}}
		joined := r.insist(join).(*kmsg.JoinGroupResponse)
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, name, joined.MemberID, joined.Generation
		sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: []byte{7}}}
		r.insist(sync)
		beats[i] = kmsg.NewPtrHeartbeatRequest()
		beats[i].Version, beats[i].Group, beats[i].MemberID, beats[i].Generation = 3, name, joined.MemberID, joined.Generation
	}
	for _, workers := range []int{1, 16} {
		b.Run(fmt.Sprint("clients=", workers), func(b *testing.B) {
			cpu := cpuTime(b)
			var running sync.WaitGroup
			for w := range workers {
				running.Go(func() {
					for i := w; i < b.N; i += workers {
						if a := r.ask(b.Context(), kafka.Client{ID: "bench"}, beats[i%groups]).(*kmsg.HeartbeatResponse); a.ErrorCode != kerr.NONE {
							b.Errorf("code %d", a.ErrorCode)
							return
						}
					}
				})
			}
			running.Wait()
			each := (cpuTime(b) - cpu) / time.Duration(b.N)
			b.ReportMetric(float64(each.Nanoseconds()), "cpu-ns/op")
			b.ReportMetric(100*each.Seconds()*groups/3, "%core")
		})
	}
}

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
