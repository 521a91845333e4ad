package group

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/billetlog/billet/internal/kerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failer is what tests of all kinds can do.
type failer interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

// logged is a record of the partition.
type logged struct {
	at     time.Time
	record Record
}

// world is what is around a core: its log, its clock, and the clients.
type world struct {
	t       failer
	opts    Options
	core    *Core
	now     time.Time
	wake    time.Time
	log     []logged // committed
	writes  []Write  // not committed
	holding bool     // writes wait for a command
	topics  *Topics
	ids     int

	tokens  Token
	asked   map[Token]*client
	lastOf  map[string]Seq // by group: its last write
	after   map[Token]Seq  // what had to be committed before the answer, when the request was taken
	clients map[string]*client
	told    []string // what happened since it was last looked at
	story   []string // all of it, with what was asked
	done    Seq
}

// client is what a client knows of itself.
type client struct {
	name       string
	group      string
	member     string
	instance   *string
	generation int32 // or epoch
	owned      owned
	body       kmsg.Request // the last one
	latest     Token        // of the last one: it waits for no other answer
	missed     bool         // an answer was lost
	topics     []string     // that it said last
}

var start = time.UnixMilli(1_700_000_000_000)

func newWorld(t failer, opts Options) *world {
	w := &world{t: t, opts: opts, now: start, topics: NewTopics(nil), asked: map[Token]*client{}, lastOf: map[string]Seq{}, after: map[Token]Seq{}, clients: map[string]*client{}}
	w.opts.NewID = func() string { w.ids++; return fmt.Sprint(w.ids) }
	w.load()
	return w
}

// load makes a core from the log.
func (w *world) load() {
	w.core = replay(w.t, w.opts, w.log)
	w.core.SetTopics(w.topics)
	w.done, w.lastOf, w.writes = 0, map[string]Seq{}, nil
	w.take(w.core.Loaded(w.now))
}

func replay(t failer, opts Options, log []logged) *Core {
	core, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range log {
		if err := core.Apply(l.at, l.record); err != nil {
			t.Fatal(err)
		}
	}
	return core
}

func (w *world) client(name string) *client {
	if w.clients[name] == nil {
		w.clients[name] = &client{name: name, owned: owned{}}
	}
	return w.clients[name]
}

func (w *world) send(who *client, body kmsg.Request) {
	if r, ok := body.(*kmsg.ConsumerGroupHeartbeatRequest); ok {
		w.story = append(w.story, fmt.Sprintf("%s says %s epoch %d, %v, has %s", who.name, r.MemberID, r.MemberEpoch, r.SubscribedTopicNames, ownedText(ownedOf(r))))
	}
	w.tokens++
	who.body, who.latest = body, w.tokens
	w.asked[w.tokens] = who
	w.take(w.core.Handle(w.now, Request{Token: w.tokens, ClientID: who.name, ClientHost: "/" + who.name, Body: body}))
}

// take does what the core wants.
func (w *world) take(e Effects) {
	w.wake = e.Wake
	for _, one := range e.Writes {
		w.writes = append(w.writes, one)
		w.lastOf[groupOfKey(w.t, one.Records[0].Key)] = one.Seq
		for _, r := range one.Records {
			w.tell("  write " + recordText(w.t, r))
		}
	}
	if who := w.asked[w.tokens]; who != nil {
		if _, ok := w.after[w.tokens]; !ok {
			w.after[w.tokens] = w.lastOf[who.group]
		}
	}
	for _, r := range e.Responses {
		w.answered(r)
	}
	if !w.holding {
		w.commit(len(w.writes))
	}
}

// commit commits the first n writes.
func (w *world) commit(n int) {
	for ; n > 0 && len(w.writes) > 0; n-- {
		one := w.writes[0]
		w.writes = w.writes[1:]
		for _, r := range one.Records {
			w.log = append(w.log, logged{one.Time, r})
		}
		if one.Seq != w.done+1 {
			w.t.Fatalf("write %d follows write %d", one.Seq, w.done)
		}
		w.done = one.Seq
		w.take(w.core.Committed(one.Seq))
	}
}

func (w *world) answered(r Response) {
	who := w.asked[r.Token]
	if who == nil {
		w.t.Fatalf("token %d is answered twice, or was never asked", r.Token)
	}
	delete(w.asked, r.Token)
	again := kmsg.ResponseForKey(r.Body.Key())
	again.SetVersion(r.Body.GetVersion())
	if err := again.ReadFrom(r.Body.AppendTo(nil)); err != nil {
		w.t.Fatalf("what %s is answered cannot be read: %v", who.name, err)
	}
	if last := w.after[r.Token]; last > w.done && !w.core.stopped {
		w.t.Fatalf("%s was answered before write %d was committed: %s", who.name, last, responseText(r.Body, w.topics))
	}
	delete(w.after, r.Token)
	if r.Token == who.latest {
		who.learn(r.Body)
	} else {
		who.missed = true
	}
	w.tell(fmt.Sprintf("%s: %s", who.name, responseText(r.Body, w.topics)))
}

func (w *world) tell(line string) {
	w.told, w.story = append(w.told, line), append(w.story, line)
}

// pass lets time go by, from one timer to the next.
func (w *world) pass(d time.Duration) {
	end := w.now.Add(d)
	for !w.wake.IsZero() && !w.wake.After(end) {
		if w.wake.After(w.now) {
			w.now = w.wake
		}
		w.take(w.core.Tick(w.now))
		if !w.wake.After(w.now) && !w.wake.IsZero() {
			w.t.Fatalf("the timer at %v does not go on", w.wake)
		}
	}
	w.now = end
}

// crash loses what is not committed, and everybody's requests.
func (w *world) crash() {
	w.story = append(w.story, "crash")
	for _, who := range w.asked {
		who.missed = true
	}
	w.asked, w.after = map[Token]*client{}, map[Token]Seq{}
	w.load()
}

// rewrite writes all groups again, and takes away what the log had before.
func (w *world) rewrite() {
	before, names := len(w.log), w.core.Names()
	for len(names) > 0 {
		n := (len(names) + 1) / 2
		w.take(w.core.Rewrite(w.now, names[:n]))
		names = names[n:]
	}
	w.holding = false
	w.commit(len(w.writes))
	w.log = w.log[before:]
}

// stop ends the core in order, and starts another one.
func (w *world) stop() {
	w.take(w.core.Stop(kerr.NOT_COORDINATOR))
	if len(w.asked) > 0 {
		w.t.Fatalf("%d requests are without an answer after Stop", len(w.asked))
	}
	w.load()
}

func (w *world) setTopics(topics ...Topic) {
	w.topics = NewTopics(topics)
	w.core.SetTopics(w.topics)
}

// topicID makes ids that tests can read.
func topicID(name string) (id TopicID) {
	copy(id[:], name)
	return id
}

func (c *client) learn(body kmsg.Response) {
	switch r := body.(type) {
	case *kmsg.JoinGroupResponse:
		if r.MemberID != "" {
			c.member = r.MemberID
		}
		if r.ErrorCode == kerr.NONE {
			c.generation = r.Generation
		}
	case *kmsg.ConsumerGroupHeartbeatResponse:
		if r.ErrorCode != kerr.NONE {
			return
		}
		if r.MemberID != nil {
			c.member = *r.MemberID
		}
		c.generation = r.MemberEpoch
		if r.Assignment != nil {
			c.owned = owned{}
			for _, t := range r.Assignment.Topics {
				for _, p := range t.Partitions {
					c.owned[topicPartition{t.TopicID, p}] = 0
				}
			}
		}
	}
}

func groupOfKey(t failer, key []byte) string {
	kind := int16(key[0])<<8 | int16(key[1])
	switch kind {
	case kindOffset:
		var k kmsg.OffsetCommitKey
		if err := k.ReadFrom(key); err != nil {
			t.Fatal(err)
		}
		return k.Group
	case kindGroup:
		var k kmsg.GroupMetadataKey
		if err := k.ReadFrom(key); err != nil {
			t.Fatal(err)
		}
		return k.Group
	}
	id, _, err := consumerNames(kind, key)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// recordText is a record as plays show it.
func recordText(t failer, r Record) string {
	kind := int16(r.Key[0])<<8 | int16(r.Key[1])
	name := map[int16]string{kindOffset: "offset", kindGroup: "group", kindGroupEpoch: "epoch", kindMember: "member",
		kindTargetEpoch: "target-epoch", kindTarget: "target", kindCurrent: "current"}[kind]
	text := name + " " + groupOfKey(t, r.Key)
	if kind >= kindGroupEpoch {
		if _, member, _ := consumerNames(kind, r.Key); member != "" {
			text += " " + member
		}
	}
	switch kind {
	case kindOffset:
		var k kmsg.OffsetCommitKey
		_ = k.ReadFrom(r.Key)
		text += fmt.Sprintf(" %s/%d", k.Topic, k.Partition)
	}
	if r.Value == nil {
		return text + " gone"
	}
	switch kind {
	case kindOffset:
		var v kmsg.OffsetCommitValue
		if err := v.ReadFrom(r.Value); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf(" at %d", v.Offset)
	case kindGroup:
		var v kmsg.GroupMetadataValue
		if err := v.ReadFrom(r.Value); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf(" gen=%d leader=%s", v.Generation, str(v.Leader))
		for _, m := range v.Members {
			text += fmt.Sprintf(" %s=%q", m.MemberID, m.Assignment)
		}
	default:
		g := &group{id: "g", consumer: newConsumerGroup(start)}
		change, err := readConsumer(kind, r.Value)
		if err != nil {
			t.Fatal(err)
		}
		change(g, "m")
		switch kind {
		case kindGroupEpoch:
			text += fmt.Sprint(" ", g.consumer.epoch)
		case kindTargetEpoch:
			text += fmt.Sprint(" ", g.consumer.assignmentEpoch)
		case kindTarget:
			text += " " + ownedText(g.consumer.target["m"])
		case kindMember:
			text += fmt.Sprint(" ", g.consumer.members["m"].topics, str(g.consumer.members["m"].regex))
		case kindCurrent:
			m := g.consumer.members["m"]
			text += fmt.Sprintf(" epoch=%d state=%d %s", m.epoch, m.state, ownedText(m.assigned))
			if len(m.revoking) > 0 {
				text += " revoking " + ownedText(m.revoking)
			}
		}
	}
	return text
}

func str(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func ownedText(o owned) string {
	var parts []string
	for _, t := range o.byTopic() {
		parts = append(parts, fmt.Sprintf("%s%v", strings.TrimRight(string(t.id[:]), "\x00"), t.partitions))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, " ")
}

func codeText(code int16) string {
	names := map[int16]string{kerr.NONE: "ok", kerr.UNKNOWN_SERVER_ERROR: "UNKNOWN_SERVER_ERROR", kerr.OFFSET_METADATA_TOO_LARGE: "OFFSET_METADATA_TOO_LARGE",
		kerr.COORDINATOR_NOT_AVAILABLE: "COORDINATOR_NOT_AVAILABLE", kerr.NOT_COORDINATOR: "NOT_COORDINATOR", kerr.INVALID_TOPIC_EXCEPTION: "INVALID_TOPIC_EXCEPTION",
		kerr.ILLEGAL_GENERATION: "ILLEGAL_GENERATION", kerr.INCONSISTENT_GROUP_PROTOCOL: "INCONSISTENT_GROUP_PROTOCOL", kerr.INVALID_GROUP_ID: "INVALID_GROUP_ID",
		kerr.UNKNOWN_MEMBER_ID: "UNKNOWN_MEMBER_ID", kerr.INVALID_SESSION_TIMEOUT: "INVALID_SESSION_TIMEOUT", kerr.REBALANCE_IN_PROGRESS: "REBALANCE_IN_PROGRESS",
		kerr.UNSUPPORTED_VERSION: "UNSUPPORTED_VERSION", kerr.INVALID_REQUEST: "INVALID_REQUEST", kerr.NON_EMPTY_GROUP: "NON_EMPTY_GROUP", kerr.GROUP_ID_NOT_FOUND: "GROUP_ID_NOT_FOUND",
		kerr.MEMBER_ID_REQUIRED: "MEMBER_ID_REQUIRED", kerr.GROUP_MAX_SIZE_REACHED: "GROUP_MAX_SIZE_REACHED", kerr.FENCED_INSTANCE_ID: "FENCED_INSTANCE_ID",
		kerr.GROUP_SUBSCRIBED_TO_TOPIC: "GROUP_SUBSCRIBED_TO_TOPIC", kerr.UNKNOWN_TOPIC_ID: "UNKNOWN_TOPIC_ID", kerr.FENCED_MEMBER_EPOCH: "FENCED_MEMBER_EPOCH",
		kerr.UNRELEASED_INSTANCE_ID: "UNRELEASED_INSTANCE_ID", kerr.UNSUPPORTED_ASSIGNOR: "UNSUPPORTED_ASSIGNOR", kerr.STALE_MEMBER_EPOCH: "STALE_MEMBER_EPOCH",
		kerr.INVALID_REGULAR_EXPRESSION: "INVALID_REGULAR_EXPRESSION"}
	if names[code] == "" {
		return fmt.Sprint("code ", code)
	}
	return names[code]
}

// responseText is a response as plays show it.
func responseText(body kmsg.Response, topics *Topics) string {
	switch r := body.(type) {
	case *kmsg.JoinGroupResponse:
		if r.ErrorCode != kerr.NONE {
			return fmt.Sprintf("join %s member=%s", codeText(r.ErrorCode), r.MemberID)
		}
		text := fmt.Sprintf("join ok gen=%d %s member=%s leader=%s", r.Generation, str(r.Protocol), r.MemberID, r.LeaderID)
		for _, m := range r.Members {
			text += " +" + m.MemberID
		}
		if r.SkipAssignment {
			text += " skip"
		}
		return text
	case *kmsg.SyncGroupResponse:
		return fmt.Sprintf("sync %s %q", codeText(r.ErrorCode), r.MemberAssignment)
	case *kmsg.HeartbeatResponse:
		return "heartbeat " + codeText(r.ErrorCode)
	case *kmsg.LeaveGroupResponse:
		text := "leave " + codeText(r.ErrorCode)
		for _, m := range r.Members {
			text += fmt.Sprintf(" %s/%s:%s", m.MemberID, str(m.InstanceID), codeText(m.ErrorCode))
		}
		return text
	case *kmsg.ConsumerGroupHeartbeatResponse:
		text := "alive " + codeText(r.ErrorCode)
		if r.ErrorCode != kerr.NONE {
			return text + " (" + str(r.ErrorMessage) + ")"
		}
		text += fmt.Sprintf(" member=%s epoch=%d", str(r.MemberID), r.MemberEpoch)
		if r.Assignment != nil {
			has := owned{}
			for _, t := range r.Assignment.Topics {
				for _, p := range t.Partitions {
					has[topicPartition{t.TopicID, p}] = 0
				}
			}
			text += " has " + ownedText(has)
		}
		return text
	}
	return adminText(body)
}

func adminText(body kmsg.Response) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch r := body.(type) {
	case *kmsg.OffsetCommitResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				add("%s/%d:%s", t.Topic, p.Partition, codeText(p.ErrorCode))
			}
		}
		return "commit " + strings.Join(parts, " ")
	case *kmsg.OffsetFetchResponse:
		if r.Version < 8 {
			add("%s", codeText(r.ErrorCode))
		}
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				add("%s/%d=%d", t.Topic, p.Partition, p.Offset)
			}
		}
		for _, g := range r.Groups {
			add("%s %s", g.Group, codeText(g.ErrorCode))
			for _, t := range g.Topics {
				for _, p := range t.Partitions {
					add("%s/%d=%d,%s", t.Topic, p.Partition, p.Offset, *p.Metadata)
				}
			}
		}
		return "fetch " + strings.Join(parts, " ")
	case *kmsg.OffsetDeleteResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				add("%s/%d:%s", t.Topic, p.Partition, codeText(p.ErrorCode))
			}
		}
		return "offset-delete " + codeText(r.ErrorCode) + " " + strings.Join(parts, " ")
	case *kmsg.ListGroupsResponse:
		for _, g := range r.Groups {
			add("%s(%s %s %s)", g.Group, g.GroupType, g.GroupState, g.ProtocolType)
		}
		return "list " + strings.Join(parts, " ")
	case *kmsg.DeleteGroupsResponse:
		for _, g := range r.Groups {
			add("%s:%s", g.Group, codeText(g.ErrorCode))
		}
		return "delete " + strings.Join(parts, " ")
	case *kmsg.DescribeGroupsResponse:
		for _, g := range r.Groups {
			add("%s %s %s %s %q", g.Group, codeText(g.ErrorCode), g.State, g.ProtocolType, g.Protocol)
			for _, m := range g.Members {
				add("%s/%s=%q", m.MemberID, str(m.InstanceID), m.MemberAssignment)
			}
		}
		return "describe " + strings.Join(parts, " ")
	case *kmsg.ConsumerGroupDescribeResponse:
		for _, g := range r.Groups {
			add("%s %s %s epoch=%d target=%d %s", g.Group, codeText(g.ErrorCode), g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName)
			for _, m := range g.Members {
				add("%s epoch=%d", m.MemberID, m.MemberEpoch)
				for _, t := range m.Assignment.TopicPartitions {
					add("%s%v", t.Topic, t.Partitions)
				}
				add("->")
				for _, t := range m.TargetAssignment.TopicPartitions {
					add("%s%v", t.Topic, t.Partitions)
				}
			}
		}
		return "describe " + strings.Join(parts, " ")
	}
	return fmt.Sprintf("%T", body)
}

// committed is all that a core holds that must be in the log. Of classic groups that
// are in a rebalance the log has an older state; of those only offsets are told.
func (c *Core) committedText() string {
	var lines []string
	for _, id := range sortedKeys(c.groups) {
		g := c.groups[id]
		var what []string
		for _, topic := range sortedKeys(g.offsets) {
			for _, p := range sortedKeys(g.offsets[topic]) {
				o := g.offsets[topic][p]
				what = append(what, fmt.Sprintf("%s/%d=%d,%d,%q,%d,%v", topic, p, o.offset, o.leaderEpoch, o.metadata, o.at.UnixMilli(), o.expires.UnixMilli()))
			}
		}
		switch {
		case g.consumer != nil:
			what = append(what, g.consumer.committedText()...)
		case g.classic.persisted && (g.classic.state == stateStable || g.classic.state == stateEmpty):
			k := g.classic
			what = append(what, fmt.Sprint(k.state, k.protocolType, k.generation, k.protocol, k.leader, k.static))
			if k.state == stateEmpty {
				what = append(what, fmt.Sprint(k.stateAt.UnixMilli()))
			}
			for _, m := range k.sorted() {
				what = append(what, fmt.Sprintf("%s %s %s %s %v %v %q %q", m.id, str(m.instance), m.clientID, m.clientHost, m.rebalance, m.sessionTimeout, m.metadata(k.protocol), m.assignment))
			}
		}
		if len(what) > 0 {
			lines = append(lines, id+": "+strings.Join(what, "; "))
		}
	}
	return strings.Join(lines, "\n")
}

func (k *consumerGroup) committedText() []string {
	what := []string{fmt.Sprint("consumer ", k.epoch, k.assignmentEpoch, k.hash, k.static, ownedEpochs(k.owners))}
	if len(k.members) == 0 {
		what = append(what, fmt.Sprint(k.emptySince.UnixMilli()))
	}
	for _, id := range sortedKeys(k.members) {
		m := k.members[id]
		what = append(what, fmt.Sprintf("%s %s %s %s %s %v %s %v %s %d %d %d %s %s", m.id, str(m.instance), str(m.rack), m.clientID, m.clientHost,
			m.topics, str(m.regex), m.rebalance, str(m.assignor), m.epoch, m.previousEpoch, m.state, ownedEpochs(m.assigned), ownedEpochs(m.revoking)))
	}
	for _, id := range sortedKeys(k.target) {
		what = append(what, "target "+id+" "+ownedText(k.target[id]))
	}
	return what
}

func ownedEpochs(o owned) string {
	var parts []string
	for _, t := range o.byTopic() {
		for _, p := range t.partitions {
			parts = append(parts, fmt.Sprintf("%x/%d@%d", t.id[:3], p, o[topicPartition{t.id, p}]))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
