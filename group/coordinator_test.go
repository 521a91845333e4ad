package group

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestOptionsAreValidated(t *testing.T) {
	id := func() string { return "x" }
	for _, one := range []struct {
		name string
		opts Options
		want string
	}{
		{"defaults", Options{NewID: id}, ""},
		{"no ids", Options{}, "NewID"},
		{"negative", Options{NewID: id, OffsetsRetention: -1}, "OffsetsRetention"},
		{"bound", Options{NewID: id, MembersMax: -1}, "MembersMax"},
		{"sessions", Options{NewID: id, SessionTimeoutMin: time.Hour}, "SessionTimeoutMax"},
		{"heartbeats", Options{NewID: id, ConsumerHeartbeatInterval: time.Minute}, "ConsumerHeartbeatInterval"},
		{"assignor", Options{NewID: id, Assignor: "best"}, "Assignor"},
		{"metadata", Options{NewID: id, OffsetMetadataBytesMax: 1 << 20}, "OffsetMetadataBytesMax"},
	} {
		_, err := New(one.opts)
		if one.want == "" && err != nil || one.want != "" && (err == nil || !strings.Contains(err.Error(), one.want)) {
			t.Errorf("%s: %v", one.name, err)
		}
	}
}

// Every request is answered, in every version, even with an error: by a core that
// runs, and by one that has stopped; and the answer can be written.
func TestEveryVersionIsAnswered(t *testing.T) {
	w := newWorld(t, Options{})
	who := w.client("anna")
	requests := []func() kmsg.Request{
		func() kmsg.Request { return kmsg.NewPtrJoinGroupRequest() }, func() kmsg.Request { return kmsg.NewPtrSyncGroupRequest() },
		func() kmsg.Request { return kmsg.NewPtrHeartbeatRequest() }, func() kmsg.Request { return kmsg.NewPtrLeaveGroupRequest() },
		func() kmsg.Request { return kmsg.NewPtrConsumerGroupHeartbeatRequest() }, func() kmsg.Request { return kmsg.NewPtrOffsetCommitRequest() },
		func() kmsg.Request { return kmsg.NewPtrOffsetFetchRequest() }, func() kmsg.Request { return kmsg.NewPtrOffsetDeleteRequest() },
		func() kmsg.Request { return kmsg.NewPtrListGroupsRequest() },
		func() kmsg.Request { r := kmsg.NewPtrDescribeGroupsRequest(); r.Groups = []string{"", "g"}; return r },
		func() kmsg.Request {
			r := kmsg.NewPtrConsumerGroupDescribeRequest()
			r.Groups = []string{"", "g"}
			return r
		},
		func() kmsg.Request { r := kmsg.NewPtrDeleteGroupsRequest(); r.Groups = []string{"", "g"}; return r },
		func() kmsg.Request { return kmsg.NewPtrMetadataRequest() },
	}
	for _, stopped := range []bool{false, true} {
		if stopped {
			w.core.Stop(NOT_COORDINATOR)
		}
		for _, request := range requests {
			for version := range request().MaxVersion() + 1 {
				r := request()
				r.SetVersion(version)
				w.send(who, r)
				if len(w.asked) > 0 {
					t.Fatalf("%T v%d is not answered", r, version)
				}
			}
		}
	}
}

func TestGroupsAreBounded(t *testing.T) {
	w := newWorld(t, Options{GroupsMax: 1})
	w.run("s commit g gen=-1 at=t/0:1")
	w.told = nil
	w.run("s commit h gen=-1 at=t/0:1")
	w.run("anna join h")
	w.run("bert alive h gen=0 topics=t")
	for _, line := range w.told {
		if !strings.Contains(line, "COORDINATOR_NOT_AVAILABLE") {
			t.Error(line)
		}
	}
	if len(w.told) != 3 {
		t.Error(w.told)
	}
}

// 1,000 groups of one member, heartbeating.
func BenchmarkHeartbeat(b *testing.B) {
	for _, protocol := range []string{"classic", "consumer"} {
		b.Run("protocol="+protocol+"/groups=1000", func(b *testing.B) {
			w := newWorld(b, Options{InitialRebalanceDelay: -1})
			w.setTopics(Topic{"t", topicID("t"), 10})
			var requests []Request
			for i := range 1000 {
				name, id := fmt.Sprint("c", i), fmt.Sprint("g", i)
				if protocol == "classic" {
					w.run(name + " join " + id)
					w.run(name + " join " + id)
					w.run(name + " sync " + id)
					w.run(name + " heartbeat " + id)
				} else {
					w.run(name + " alive " + id + " topics=t")
					w.run(name + " alive " + id)
				}
				requests = append(requests, Request{ClientID: name, ClientHost: "/" + name, Body: w.client(name).body})
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				e := w.core.Handle(w.now.Add(time.Duration(i)*time.Millisecond/1000), requests[i%1000])
				if len(e.Responses) != 1 {
					b.Fatal(e)
				}
			}
		})
	}
}
