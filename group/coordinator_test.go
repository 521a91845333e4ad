package group

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
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
			w.core.Stop(kerr.NOT_COORDINATOR)
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

// However much is written at once, each write stays below what a partition takes; a
// member gets no more than a record holds.
func TestWritesAreBounded(t *testing.T) {
	w := newWorld(t, Options{MemberBytesMax: 1000, RecordBytesMax: 4000, WriteBytesMax: 1000})
	w.setTopics(Topic{"t", topicID("t"), 1000})
	w.holding = true
	w.run("anna alive g topics=t")
	w.run("s commit g gen=-1 member= at=t/0:1")
	for i := range 30 {
		w.run(fmt.Sprintf("c%d alive g topics=t", i))
	}
	for _, one := range w.writes {
		size := 0
		for _, r := range one.Records {
			size += len(r.Key) + len(r.Value)
			if len(r.Value) > 4000 {
				t.Errorf("a record has %d bytes", len(r.Value))
			}
		}
		if size > 1000 && len(one.Records) > 1 {
			t.Errorf("a write has %d bytes", size)
		}
	}
	w.commit(len(w.writes))
	if n := len(w.client("anna").owned); n < 200 || n > 250 {
		t.Errorf("a member has %d partitions of 4 bytes, and a quarter of 4000 bytes holds less than 250", n)
	}
	w.checkReplay(t)
}

// Wherever the log of what one request does ends, the next core goes on: a member
// that was being removed is fenced, a target that is there in part is computed anew.
func TestLogsThatEndWithinAWrite(t *testing.T) {
	w := newWorld(t, Options{})
	w.setTopics(Topic{"t", topicID("t"), 9})
	for _, line := range []string{"anna alive g topics=t", "bert alive g topics=t", "anna alive g owns=all", "anna alive g owns=all", "bert alive g", "cleo alive g topics=t",
		"anna alive g gen=-1", "bert alive g owns=all", "cleo alive g", "bert alive g owns=all", "cleo alive g", "bert alive g gen=-1"} {
		w.run(line)
	}
	for end := range w.log {
		one := newWorld(t, Options{})
		one.log = w.log[:end:end]
		one.setTopics(w.topics.sorted...)
		one.load()
		for _, name := range []string{"anna", "bert", "cleo"} {
			one.client(name).member = name
			if g := one.core.groups["g"]; g != nil && g.consumer != nil && g.consumer.members[name] != nil {
				one.client(name).generation = g.consumer.members[name].epoch
			}
		}
		for range 6 {
			for _, name := range []string{"anna", "bert", "cleo"} {
				one.told = nil
				one.run(name + " alive g owns=all topics=t rebalance=60s")
				if strings.Contains(one.told[len(one.told)-1], "FENCED") {
					one.run(name + " alive g gen=0 topics=t")
				}
			}
		}
		total := 0
		for _, name := range []string{"anna", "bert", "cleo"} {
			total += len(one.client(name).owned)
		}
		if total != 9 || one.core.groups["g"].consumer.state() != "Stable" {
			t.Errorf("after %d records of %d members have %d partitions of 9", end, len(w.log), total)
		}
		one.checkReplay(t)
	}
}
