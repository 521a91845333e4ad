package group

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The bytes of each kind of record are frozen: they are in logs, and other programs
// read them.
func TestRecordsAreFrozen(t *testing.T) {
	instance, regex := "i", "r.*"
	m := &consumerMember{id: "m", instance: &instance, clientID: "c", clientHost: "h", topics: []string{"a", "b"}, regex: &regex,
		rebalance: time.Second, epoch: 2, previousEpoch: 1, state: memberUnrevoked,
		assigned: owned{{topicID("t"), 0}: 1, {topicID("t"), 2}: 2}, revoking: owned{{topicID("u"), 1}: 1}}
	id := func(name string) string { x := topicID(name); return hex.EncodeToString(x[:]) }
	for _, one := range []struct {
		name       string
		record     Record
		key, value string
	}{
		{"epoch", groupEpochRecord("g", 7, 9), "0003 0001 67", "0000 00000007 01 00 08 0000000000000009"},
		{"epoch without topics", groupEpochRecord("g", 7, 0), "0003 0001 67", "0000 00000007 00"},
		{"member", memberRecord("g", m), "0005 0001 67 0001 6d", "0000 0269 00 0263 0268 03 0261 0262 04722e2a 000003e8 00 00"},
		{"target epoch", targetEpochRecord("g", 7), "0006 0001 67", "0000 00000007 00"},
		{"target", targetRecord("g", "m", m.revoking), "0007 0001 67 0001 6d", "0000 02 " + id("u") + " 02 00000001 00 00"},
		{"current", currentRecord("g", m), "0008 0001 67 0001 6d", "0000 00000002 00000001 01 02 " + id("t") + " 03 00000000 00000002 01 00 09 03 00000001 00000002" +
			" 02 " + id("u") + " 02 00000001 01 00 05 02 00000001 00"},
		{"offset", commitRecord("g", "t", 3, commit{offset: 5, leaderEpoch: 2, metadata: "n", at: time.UnixMilli(9)}),
			"0001 0001 67 0001 74 00000003", "0003 0000000000000005 00000002 0001 6e 0000000000000009"},
		{"offset of a topic", commitRecord("g", "t", 3, commit{offset: 5, leaderEpoch: 2, metadata: "n", at: time.UnixMilli(9), topic: topicID("t")}),
			"0001 0001 67 0001 74 00000003", "0004 0000000000000005 00000002 02 6e 0000000000000009 01 00 10" + id("t")},
		{"offset that expires", commitRecord("g", "t", 3, commit{offset: 5, metadata: "n", at: time.UnixMilli(9), expires: time.UnixMilli(10)}),
			"0001 0001 67 0001 74 00000003", "0001 0000000000000005 0001 6e 0000000000000009 000000000000000a"},
	} {
		for what, pair := range map[string][2]string{"key": {hex.EncodeToString(one.record.Key), one.key}, "value": {hex.EncodeToString(one.record.Value), one.value}} {
			if want := strings.ReplaceAll(pair[1], " ", ""); pair[0] != want {
				t.Errorf("the %s of %s is\n%s, not\n%s", what, one.name, pair[0], want)
			}
		}
	}
}

// Values that newer coordinators write have tags that are not known here.
func TestUnknownTagsAreSkipped(t *testing.T) {
	core := replay(t, Options{NewID: func() string { return "" }}, nil)
	value := []byte{0, 0, 0, 0, 0, 4, 2, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 7, 2, 9, 9}
	if err := core.Apply(start, Record{groupEpochKey("g"), value}); err != nil {
		t.Fatal(err)
	}
	if k := core.groups["g"].consumer; k.epoch != 4 || k.hash != 1 {
		t.Fatal(k.epoch, k.hash)
	}
}

// Whatever a record says, a core reads it or tells what is wrong; and whatever it
// has read, it goes on.
func FuzzApply(f *testing.F) {
	w := newWorld(f, Options{})
	w.setTopics(Topic{"t", topicID("t"), 4})
	for _, line := range []string{"anna join g", "anna join g", "pass 3s", "anna sync g assign=anna-1:x", "anna commit g at=t/0:5", "anna leave g",
		"bert alive h instance=i topics=t", "cleo alive h topics=t", "bert alive h", "bert alive h owns=all", "cleo alive h", "bert alive h gen=-2", "cleo alive h gen=-1"} {
		w.run(line)
	}
	for _, l := range w.log {
		f.Add(l.record.Key, l.record.Value, []byte(nil), []byte(nil))
		f.Add(l.record.Key, l.record.Value, l.record.Key, []byte(nil))
	}
	for i := range w.log[1:] {
		f.Add(w.log[i].record.Key, w.log[i].record.Value, w.log[i+1].record.Key, w.log[i+1].record.Value)
	}
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2 []byte) {
		w := newWorld(t, Options{})
		w.core = replay(t, w.opts, nil)
		before := ""
		for _, r := range []Record{{key1, value1}, {key2, value2}} {
			if err := w.core.Apply(start, r); err != nil && w.core.committedText() != before {
				t.Fatalf("%v, and yet something has changed", err)
			}
			before = w.core.committedText()
		}
		w.setTopics(Topic{"t", topicID("t"), 4})
		w.take(w.core.Loaded(w.now))
		for _, id := range []string{"g", "h"} {
			for _, line := range []string{"bert alive " + id + " gen=0 topics=t", "bert alive " + id + " owns=all", "anna join " + id, "anna commit " + id + " at=t/1:5",
				"anna fetch " + id, "admin describe " + id, "admin consumer-describe " + id, "admin list", "pass 30s", "admin delete " + id} {
				w.run(line)
			}
		}
	})
}

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	var key kmsg.OffsetCommitKey
	r := commitRecord("g", "t", 3, commit{offset: 5, at: start})
	if err := key.ReadFrom(r.Key); err != nil || key.Group != "g" || key.Topic != "t" || key.Partition != 3 {
		t.Fatal(err, key)
	}
	core := replay(t, Options{NewID: func() string { return "" }}, nil)
	for _, bad := range []Record{{}, {Key: []byte{0}}, {[]byte{0, 1, 0}, nil}, {r.Key, r.Value[:9]}, {groupEpochKey("g"), []byte{0, 1, 0, 0, 0, 0, 0}},
		{groupEpochKey("g"), []byte{0, 0, 0, 0, 0, 0, 0, 1}}, {append(groupEpochKey("g"), 1), nil}, {consumerKey(kindCurrent, "g", "m"), bytes.Repeat([]byte{9}, 40)}} {
		if err := core.Apply(start, bad); err == nil {
			t.Errorf("key %x with value %x is no error", bad.Key, bad.Value)
		}
	}
	if len(core.groups) > 0 {
		t.Error("bad records have left groups")
	}
	if err := core.Apply(start, Record{[]byte{0, 99, 1}, []byte{1}}); err != nil {
		t.Error("a kind that is not known is no error, but", err)
	}
}
