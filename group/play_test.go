package group

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var rewrite = flag.Bool("rewrite", false, "write what happens into the plays of testdata, to be read as a change")

// TestPlays runs testdata: paragraphs of commands, a line of dashes, and what happens.
func TestPlays(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no plays", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *rewrite {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s: something else happens (run with -rewrite and read the change):\n%s", name, difference(string(text), got))
			}
		})
	}
}

func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range g {
		if i >= len(w) || w[i] != g[i] {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, strings.Join(w[min(i, len(w)):min(i+6, len(w))], "\n     "), strings.Join(g[i:min(i+6, len(g))], "\n     "))
		}
	}
	return fmt.Sprintf("%d lines are missing", len(w)-len(g))
}

func play(t *testing.T, text string) string {
	w := newWorld(t, Options{})
	var out []string
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(paragraph, "\n----")
		out = append(out, commands)
		ran := false
		for line := range strings.SplitSeq(commands, "\n") {
			if line != "" && !strings.HasPrefix(line, "#") {
				w.run(line)
				ran = true
			}
		}
		if ran {
			out = append(out, "----")
			out = append(out, w.told...)
		}
		w.told = nil
		out = append(out, "")
	}
	return strings.Join(out, "\n")
}

// args are the words of a command: positions, and key=value.
type args struct {
	words []string
	named map[string]string
}

func parseArgs(line string) args {
	a := args{named: map[string]string{}}
	for word := range strings.FieldsSeq(line) {
		if key, value, ok := strings.Cut(word, "="); ok {
			a.named[key] = value
		} else {
			a.words = append(a.words, word)
		}
	}
	return a
}

func (a args) str(key, otherwise string) string {
	if v, ok := a.named[key]; ok {
		return v
	}
	return otherwise
}

func (a args) ptr(key string) *string {
	if v, ok := a.named[key]; ok {
		return &v
	}
	return nil
}

func (a args) num(t failer, key string, otherwise int) int {
	v, ok := a.named[key]
	if !ok {
		return otherwise
	}
	if d, err := time.ParseDuration(v); err == nil && strings.ContainsAny(v, "smh") {
		return int(d.Milliseconds())
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s=%s: %v", key, v, err)
	}
	return n
}

// run does one command: of the world, or of a client by its name.
func (w *world) run(line string) {
	a := parseArgs(line)
	switch a.words[0] {
	case "options":
		w.opts.MembersMax = a.num(w.t, "members", 0)
		w.opts.RecordBytesMax = a.num(w.t, "record", 0)
		w.opts.MemberBytesMax = w.opts.RecordBytesMax
		w.opts.InitialRebalanceDelay = time.Duration(a.num(w.t, "delay", 0)) * time.Millisecond
		w.opts.OffsetMetadataBytesMax = a.num(w.t, "metadata", 0)
		w.load()
	case "pass":
		d, err := time.ParseDuration(a.words[1])
		if err != nil {
			w.t.Fatal(err)
		}
		w.pass(d)
	case "stand": // the coordinator stands still
		d, err := time.ParseDuration(a.words[1])
		if err != nil {
			w.t.Fatal(err)
		}
		w.now = w.now.Add(d)
		w.take(w.core.Delay(w.now, d))
		w.pass(0)
	case "hold":
		w.holding = true
	case "commit":
		w.holding = false
		w.commit(len(w.writes))
	case "crash":
		w.crash()
	case "stop":
		w.stop()
	case "topics":
		var topics []Topic
		for _, word := range a.words[1:] {
			name, n, _ := strings.Cut(word, ":")
			partitions, err := strconv.Atoi(n)
			if err != nil {
				w.t.Fatal(line, err)
			}
			topics = append(topics, Topic{name, topicID(name), int32(partitions)})
		}
		w.setTopics(topics...)
	case "topics-deleted":
		w.take(w.core.TopicsDeleted(w.now, a.words[1:]))
	default:
		if len(a.words) < 2 {
			w.t.Fatalf("%q: no such command", line)
		}
		who := w.client(a.words[0])
		if len(a.words) > 2 {
			who.group = a.words[2]
		}
		w.send(who, w.request(who, a))
	}
}

func (w *world) request(who *client, a args) kmsg.Request {
	if v := a.ptr("instance"); v != nil {
		who.instance = v
	}
	who.member = a.str("member", who.member)
	generation := int32(a.num(w.t, "gen", int(who.generation)))
	switch a.words[1] {
	case "join":
		r := kmsg.NewPtrJoinGroupRequest()
		r.Version = int16(a.num(w.t, "v", 9))
		r.Group, r.MemberID, r.InstanceID = who.group, who.member, who.instance
		r.SessionTimeoutMillis = int32(a.num(w.t, "session", 10_000))
		r.RebalanceTimeoutMillis = int32(a.num(w.t, "rebalance", 60_000))
		r.ProtocolType = a.str("type", "consumer")
		for name := range strings.SplitSeq(a.str("protocols", "range"), ",") {
			p := kmsg.NewJoinGroupRequestProtocol()
			p.Name, p.Metadata = name, subscriptionOf(a.str("topics", "t"))
			r.Protocols = append(r.Protocols, p)
		}
		return r
	case "sync":
		r := kmsg.NewPtrSyncGroupRequest()
		r.Version = 5
		r.Group, r.MemberID, r.InstanceID, r.Generation = who.group, who.member, who.instance, generation
		r.Protocol, r.ProtocolType = a.ptr("protocol"), a.ptr("type")
		for pair := range strings.SplitSeq(a.str("assign", ""), ",") {
			if member, what, ok := strings.Cut(pair, ":"); ok {
				one := kmsg.NewSyncGroupRequestGroupAssignment()
				one.MemberID, one.MemberAssignment = member, []byte(what)
				r.GroupAssignment = append(r.GroupAssignment, one)
			}
		}
		return r
	case "heartbeat":
		r := kmsg.NewPtrHeartbeatRequest()
		r.Version = 4
		r.Group, r.MemberID, r.InstanceID, r.Generation = who.group, who.member, who.instance, generation
		return r
	case "leave":
		r := kmsg.NewPtrLeaveGroupRequest()
		r.Version = int16(a.num(w.t, "v", 5))
		r.Group, r.MemberID = who.group, who.member
		one := kmsg.NewLeaveGroupRequestMember()
		one.MemberID, one.InstanceID = who.member, who.instance
		r.Members = append(r.Members, one)
		for id := range strings.SplitSeq(a.str("also", ""), ",") {
			if id != "" {
				more := kmsg.NewLeaveGroupRequestMember()
				if instance, ok := strings.CutPrefix(id, "@"); ok {
					more.InstanceID = &instance
				} else {
					more.MemberID = id
				}
				r.Members = append(r.Members, more)
			}
		}
		return r
	case "alive":
		return w.aliveRequest(who, a, generation)
	}
	return w.adminRequest(who, a, generation)
}

// aliveRequest is a heartbeat of the consumer protocol: "join" and "full" say all,
// otherwise only what is given is said.
func (w *world) aliveRequest(who *client, a args, generation int32) kmsg.Request {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version = int16(a.num(w.t, "v", 1))
	r.Group, r.MemberID, r.InstanceID, r.MemberEpoch = who.group, who.member, who.instance, generation
	r.RebalanceTimeoutMillis = int32(a.num(w.t, "rebalance", -1))
	if names, ok := a.named["topics"]; ok {
		r.SubscribedTopicNames = []string{}
		for name := range strings.SplitSeq(names, ",") {
			if name != "" {
				r.SubscribedTopicNames = append(r.SubscribedTopicNames, name)
			}
		}
	}
	r.SubscribedTopicRegex, r.ServerAssignor, r.RackID = a.ptr("regex"), a.ptr("assignor"), a.ptr("rack")
	if r.MemberEpoch == 0 {
		if r.MemberID == "" && r.Version > 0 {
			r.MemberID = who.name
			who.member = who.name
		}
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		r.RebalanceTimeoutMillis = int32(a.num(w.t, "rebalance", 60_000))
		return r
	}
	if a.str("owns", "") == "all" { // what it was told last
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		for _, t := range who.owned.byTopic() {
			one := kmsg.NewConsumerGroupHeartbeatRequestTopic()
			one.TopicID, one.Partitions = t.id, t.partitions
			r.Topics = append(r.Topics, one)
		}
	}
	return r
}

func (w *world) adminRequest(who *client, a args, generation int32) kmsg.Request {
	groups := a.words[2:]
	each := func(add func(topic string, partition int32, offset int64)) {
		for pair := range strings.SplitSeq(a.str("at", ""), ",") {
			if where, offset, _ := strings.Cut(pair, ":"); where != "" {
				topic, p, _ := strings.Cut(where, "/")
				partition, err := strconv.Atoi(p)
				if err != nil {
					w.t.Fatal(pair, err)
				}
				n, _ := strconv.ParseInt(offset, 10, 64)
				add(topic, int32(partition), n)
			}
		}
	}
	switch a.words[1] {
	case "commit":
		r := kmsg.NewPtrOffsetCommitRequest()
		r.Version = int16(a.num(w.t, "v", 9))
		r.Group, r.MemberID, r.InstanceID, r.Generation = who.group, who.member, who.instance, generation
		r.RetentionTimeMillis = int64(a.num(w.t, "retention", -1))
		each(func(topic string, partition int32, offset int64) {
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic, t.TopicID = topic, topicID(topic)
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.Metadata = partition, offset, a.ptr("note")
			t.Partitions = append(t.Partitions, p)
			r.Topics = append(r.Topics, t)
		})
		return r
	case "fetch":
		r := kmsg.NewPtrOffsetFetchRequest()
		r.Version = int16(a.num(w.t, "v", 9))
		r.Group = who.group
		for _, id := range groups {
			g := kmsg.NewOffsetFetchRequestGroup()
			g.Group = id
			if v, ok := a.named["epoch"]; ok {
				n, _ := strconv.Atoi(v)
				g.MemberEpoch, g.MemberID = int32(n), &who.member
			}
			each(func(topic string, partition int32, _ int64) {
				t := kmsg.NewOffsetFetchRequestGroupTopic()
				t.Topic, t.TopicID, t.Partitions = topic, topicID(topic), []int32{partition}
				g.Topics = append(g.Topics, t)
				old := kmsg.NewOffsetFetchRequestTopic()
				old.Topic, old.Partitions = topic, []int32{partition}
				r.Topics = append(r.Topics, old)
			})
			r.Groups = append(r.Groups, g)
		}
		return r
	case "offset-delete":
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = who.group
		each(func(topic string, partition int32, _ int64) {
			t := kmsg.NewOffsetDeleteRequestTopic()
			t.Topic, t.Partitions = topic, []kmsg.OffsetDeleteRequestTopicPartition{{Partition: partition}}
			r.Topics = append(r.Topics, t)
		})
		return r
	case "list":
		r := kmsg.NewPtrListGroupsRequest()
		r.Version = 5
		r.StatesFilter, r.TypesFilter = list(a, "states"), list(a, "types")
		return r
	case "describe":
		r := kmsg.NewPtrDescribeGroupsRequest()
		r.Version, r.Groups = int16(a.num(w.t, "v", 5)), groups
		return r
	case "consumer-describe":
		r := kmsg.NewPtrConsumerGroupDescribeRequest()
		r.Version, r.Groups = 1, groups
		return r
	case "delete":
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Version, r.Groups = 2, groups
		return r
	}
	w.t.Fatalf("%v: no such command", a.words)
	return nil
}

func list(a args, key string) []string {
	if v, ok := a.named[key]; ok {
		return strings.Split(v, ",")
	}
	return nil
}

func subscriptionOf(topics string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = strings.Split(topics, ",")
	return m.AppendTo(nil)
}
