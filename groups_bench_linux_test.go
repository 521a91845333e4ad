package billet

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// BenchmarkKafkaGroupsHeartbeat is what 1,000 groups of one member cost that beat every 3
// seconds over TCP, as part of one core. The client is in it.
func BenchmarkKafkaGroupsHeartbeat(b *testing.B) {
	log, err := Open(Config{Dir: b.TempDir(), Kafka: Kafka{Addr: "127.0.0.1:0"}, Groups: Groups{InitialRebalanceDelay: -1}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := log.Close(); err != nil {
			b.Error(err)
		}
	}()
	client, err := kgo.NewClient(kgo.SeedBrokers(log.KafkaAddr()))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	const groups = 1_000
	beats := make([]*kmsg.HeartbeatRequest, groups)
	for i := range beats {
		name := fmt.Sprint("group-", i)
		join := kmsg.NewPtrJoinGroupRequest()
		join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = name, "consumer", 1_800_000, 30_000
		join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{1}}}
		joined, err := join.RequestWith(b.Context(), client)
		if err == nil && joined.ErrorCode != 0 {
			join.MemberID = joined.MemberID
			joined, err = join.RequestWith(b.Context(), client)
		}
		if err != nil || joined.ErrorCode != 0 {
			b.Fatalf("join: %+v, %v", joined, err)
		}
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Group, sync.MemberID, sync.Generation = name, joined.MemberID, joined.Generation
		sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: []byte{7}}}
		if _, err := sync.RequestWith(b.Context(), client); err != nil {
			b.Fatal(err)
		}
		beats[i] = kmsg.NewPtrHeartbeatRequest()
		beats[i].Group, beats[i].MemberID, beats[i].Generation = name, joined.MemberID, joined.Generation
	}
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := cpu()
	b.ResetTimer()
	for i := range b.N {
		if a, err := beats[i%groups].RequestWith(b.Context(), client); err != nil || a.ErrorCode != 0 {
			b.Fatalf("heartbeat: %+v, %v", a, err)
		}
	}
	each := (cpu() - before) / time.Duration(b.N)
	b.ReportMetric(float64(each.Nanoseconds()), "cpu-ns/op")
	b.ReportMetric(100*each.Seconds()*groups/3, "%core")
}
