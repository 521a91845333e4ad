package group

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// chance is true n times of a hundred.
func chance(t *rapid.T, n int) bool { return rapid.IntRange(0, 99).Draw(t, "chance") < n }

// anything does to a world what can happen to it besides requests.
func (w *world) anything(t *rapid.T) {
	switch rapid.IntRange(0, 10).Draw(t, "event") {
	case 10:
		w.rewrite()
	case 0, 1, 2:
		w.pass(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond)
	case 3:
		w.pass(time.Duration(rapid.IntRange(1, 60).Draw(t, "s")) * time.Second)
	case 4:
		w.holding = true
	case 5, 6:
		w.holding = false
		w.commit(len(w.writes))
	case 7:
		w.commit(rapid.IntRange(0, len(w.writes)).Draw(t, "writes"))
	case 8:
		w.crash()
	case 9:
		w.stop()
	}
}

// checkReplay holds the core against one that reads the log.
func (w *world) checkReplay(t failer) {
	if len(w.writes) > 0 {
		return
	}
	again := replay(t, w.opts, w.log)
	for id, g := range w.core.groups {
		// The log has what was before the rebalance.
		if k := g.classic; k != nil && (k.state == statePreparing || k.state == stateCompleting) {
			if other := again.groups[id]; other != nil && other.classic != nil {
				other.classic.persisted = false
			}
		}
	}
	if got, want := again.committedText(), w.core.committedText(); got != want {
		t.Fatalf("a core that reads the log has\n%s\nthe running one has\n%s", got, want)
	}
}

func TestClassicProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, Options{InitialRebalanceDelay: -1, MembersMax: 4, MemberBytesMax: 200, RecordBytesMax: 600, WriteBytesMax: 100})
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			if chance(rt, 25) {
				w.anything(rt)
			} else {
				w.classicStep(rt)
			}
			w.checkClassic(rt)
			w.checkReplay(rt)
		}
	})
}

func (w *world) classicStep(t *rapid.T) {
	who := w.client(rapid.SampledFrom([]string{"anna", "bert", "cleo", "dora", "eric", "finn"}).Draw(t, "who"))
	if who.group == "" {
		who.group = rapid.SampledFrom([]string{"g", "h"}).Draw(t, "group")
		if chance(t, 30) {
			who.instance = kmsg.StringPtr(rapid.SampledFrom([]string{"one", "two"}).Draw(t, "instance"))
		}
	}
	command := rapid.SampledFrom([]string{"join", "join", "join", "sync", "sync", "heartbeat", "heartbeat", "leave", "commit", "fetch", "delete", "list", "describe", "offset-delete", "forget"}).Draw(t, "command")
	a := args{words: []string{who.name, command, who.group}, named: map[string]string{}}
	switch command {
	case "forget":
		who.member = "" // a new incarnation
		return
	case "join":
		a.named["topics"] = rapid.SampledFrom([]string{"t", "t,u"}).Draw(t, "topics")
		a.named["protocols"] = rapid.SampledFrom([]string{"range", "range,sticky", "sticky,range"}).Draw(t, "protocols")
		a.named["v"] = rapid.SampledFrom([]string{"3", "4", "9"}).Draw(t, "version")
	case "sync":
		if g := w.core.groups[who.group]; g != nil && g.classic != nil {
			for _, m := range g.classic.sorted() {
				a.named["assign"] += m.id + ":" + fmt.Sprint(g.classic.generation) + ","
			}
		}
	case "commit", "offset-delete":
		a.named["at"] = fmt.Sprintf("%s/%d:%d", rapid.SampledFrom([]string{"t", "u"}).Draw(t, "topic"), rapid.IntRange(0, 2).Draw(t, "partition"), rapid.IntRange(0, 9).Draw(t, "offset"))
		if chance(t, 20) {
			a.named["gen"] = "-1"
		}
	}
	w.send(who, w.request(who, a))
}

// checkClassic holds what is in a core against what must be.
func (w *world) checkClassic(t *rapid.T) {
	persisted := map[string]int32{}
	for _, l := range w.log {
		if l.record.Key[1] != kindGroup {
			continue
		}
		id := groupOfKey(t, l.record.Key)
		if l.record.Value == nil {
			delete(persisted, id)
			continue
		}
		var v kmsg.GroupMetadataValue
		if err := v.ReadFrom(l.record.Value); err != nil {
			t.Fatal(err)
		}
		if v.Generation < persisted[id] {
			t.Fatalf("the log of %s goes from generation %d to %d", id, persisted[id], v.Generation)
		}
		persisted[id] = v.Generation
	}
	for id, g := range w.core.groups {
		k := g.classic
		if k.generation < persisted[id] && len(w.writes) == 0 {
			t.Fatalf("%s is in generation %d, its log in %d", id, k.generation, persisted[id])
		}
		if k.state == stateEmpty && len(k.members) > 0 || k.state > statePreparing && len(k.members) == 0 {
			t.Fatalf("%s is %s with %d members", id, k.state, len(k.members))
		}
		if len(k.members) > 0 && k.members[k.leader] == nil {
			t.Fatalf("%s is led by %q, who is no member", id, k.leader)
		}
		for instance, member := range k.static {
			if m := k.members[member]; m == nil || *m.instance != instance {
				t.Fatalf("instance %s of %s is %q, who is no member", instance, id, member)
			}
		}
		for _, m := range k.members {
			if k.state != statePreparing && m.join != nil || k.state != stateCompleting && m.sync != nil {
				t.Fatalf("%s waits in a group that is %s", m.id, k.state)
			}
			if m.session.place == 0 && m.join == nil && m.sync == nil {
				t.Fatalf("nobody notices when %s is silent", m.id)
			}
		}
		if k.state == statePreparing && k.join.place == 0 {
			t.Fatalf("the rebalance of %s has no end", id)
		}
	}
}

// holder is a client of a consumer group that gives up partitions in its own time.
type holder struct {
	*client
	holds owned
}

// hear does what an answer says: new partitions are taken at once, lost ones later.
func (h *holder) hear() {
	maps.Copy(h.holds, h.owned)
}

func TestConsumerProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, Options{MembersMax: 5, MemberBytesMax: 400, RecordBytesMax: 800, WriteBytesMax: 100})
		w.setTopics(Topic{"t", topicID("t"), 4}, Topic{"u", topicID("u"), 3})
		holders := map[string]*holder{}
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			switch {
			case chance(rt, 20):
				w.anything(rt)
			case chance(rt, 5):
				w.setTopics(Topic{"t", topicID("t"), int32(rapid.IntRange(1, 9).Draw(rt, "partitions"))}, Topic{"u", topicID("u"), 3})
			default:
				w.consumerStep(rt, holders)
			}
			w.checkOwners(rt, holders)
			w.checkReplay(rt)
		}
		w.settle(rt, holders)
	})
}

func (w *world) consumerStep(t *rapid.T, holders map[string]*holder) {
	name := rapid.SampledFrom([]string{"anna", "bert", "cleo", "dora"}).Draw(t, "who")
	h := holders[name]
	if h == nil {
		h = &holder{w.client(name), owned{}}
		h.group = "g"
		if chance(t, 30) {
			h.instance = kmsg.StringPtr("i-" + name)
		}
		holders[name] = h
	}
	a := args{words: []string{name, "alive", "g"}, named: map[string]string{}}
	switch rapid.IntRange(0, 11).Draw(t, "what") {
	case 0: // it starts again, with nothing
		h.join(w, a, t)
	case 1:
		a.named["gen"] = "-1"
		h.holds = owned{}
		w.send(h.client, w.request(h.client, a))
		h.generation = 0
	case 2:
		if h.instance != nil {
			a.named["gen"] = "-2"
			h.holds = owned{}
			w.send(h.client, w.request(h.client, a))
			h.generation = 0
		}
	case 3:
		if h.generation > 0 {
			a.named["topics"] = rapid.SampledFrom([]string{"t", "u", "t,u"}).Draw(t, "topics")
			h.beat(w, a, false)
		}
	case 4:
		a.words[1], a.named["at"] = "commit", "t/0:3"
		w.send(h.client, w.request(h.client, a))
	default:
		if h.generation == 0 {
			h.join(w, a, t)
			return
		}
		h.beat(w, a, chance(t, 60))
	}
}

func (h *holder) join(w *world, a args, t *rapid.T) {
	a.named["gen"] = "0"
	if chance(t, 20) && h.instance != nil {
		h.member = fmt.Sprint(h.name, len(w.log)) // as another process
	}
	a.named["topics"] = rapid.SampledFrom([]string{"t", "u", "t,u"}).Draw(t, "topics")
	if chance(t, 30) {
		a.named["regex"] = "[tx]"
	}
	if chance(t, 20) {
		a.named["assignor"] = rapid.SampledFrom([]string{AssignorRange, AssignorUniform}).Draw(t, "assignor")
	}
	h.holds, h.owned, h.generation = owned{}, owned{}, 0
	h.topics = strings.Split(a.named["topics"], ",")
	w.send(h.client, w.request(h.client, a))
	h.hear()
}

// beat gives up what it was told to, or not yet, and says what it holds.
func (h *holder) beat(w *world, a args, revoke bool) {
	h.hear() // what was answered meanwhile
	r := w.request(h.client, a).(*kmsg.ConsumerGroupHeartbeatRequest)
	if revoke {
		h.holds = h.owned.clone()
	}
	r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for _, t := range h.holds.byTopic() {
		r.Topics = append(r.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.id, Partitions: t.partitions})
	}
	if h.missed { // it says and asks for all
		h.missed = false
		r.RebalanceTimeoutMillis = 60_000
		if r.SubscribedTopicNames == nil {
			r.SubscribedTopicNames = h.topics
		}
	}
	if r.SubscribedTopicNames != nil {
		h.topics = r.SubscribedTopicNames
	}
	before := h.generation
	w.told = nil
	w.send(h.client, r)
	h.hear()
	for _, line := range w.told { // fenced clients drop all, and join again
		if line == h.name+": alive UNKNOWN_MEMBER_ID (there is no such member)" || h.generation == before && len(line) > 0 && contains(line, h.name+": alive FENCED", h.name+": alive GROUP_ID", h.name+": alive UNKNOWN") {
			h.holds, h.owned, h.generation = owned{}, owned{}, 0
		}
	}
}

func contains(line string, beginnings ...string) bool {
	for _, b := range beginnings {
		if len(line) >= len(b) && line[:len(b)] == b {
			return true
		}
	}
	return false
}

// checkOwners wants no partition to be with two: neither in the core's books, nor
// with clients that are still members.
func (w *world) checkOwners(t *rapid.T, holders map[string]*holder) {
	g := w.core.groups["g"]
	if g == nil || g.consumer == nil {
		return
	}
	k := g.consumer
	seen := map[topicPartition]string{}
	for id, m := range k.members {
		for _, has := range []owned{m.assigned, m.revoking} {
			for tp := range has {
				if other, ok := seen[tp]; ok {
					t.Fatalf("%v is with %s and %s", tp, other, id)
				}
				seen[tp] = id
				if _, ok := k.owners[tp]; !ok {
					t.Fatalf("%v is with %s, but has no owner", tp, id)
				}
			}
		}
	}
	if len(seen) != len(k.owners) {
		t.Fatalf("%d partitions have an owner, %d are with members", len(k.owners), len(seen))
	}
	held := map[topicPartition]string{}
	for name, h := range holders {
		m := k.members[h.member]
		if m == nil || m.epoch <= 0 || h.generation <= 0 || h.generation > m.epoch {
			continue // it is fenced by its next heartbeat, and its session was over
		}
		for tp := range h.holds {
			if other, ok := held[tp]; ok {
				t.Fatalf("%v is read by %s and %s:\n%s", tp, other, name, strings.Join(w.story, "\n"))
			}
			held[tp] = name
		}
	}
}

// settle lets all members hear until nothing moves any more: then each has its target.
func (w *world) settle(t *rapid.T, holders map[string]*holder) {
	w.holding = false
	w.commit(len(w.writes))
	for range 12 {
		for _, name := range sortedKeys(holders) {
			h := holders[name]
			if h.generation > 0 {
				h.beat(w, args{words: []string{name, "alive", "g"}, named: map[string]string{}}, true)
			}
		}
	}
	g := w.core.groups["g"]
	if g == nil || g.consumer == nil {
		return
	}
	k := g.consumer
	for id, m := range k.members {
		silent := true
		for _, h := range holders {
			if h.member == id && h.generation > 0 {
				silent = false
			}
		}
		if silent {
			return // the others wait until its session is over
		}
		_ = m
	}
	for id, m := range k.members {
		if m.state != memberStable || !samePartitions(m.assigned, k.target[id]) {
			t.Fatalf("%s does not reach its target: it has %s, in state %d, and should have %s", id, ownedText(m.assigned), m.state, ownedText(k.target[id]))
		}
	}
	w.checkReplay(t)
}
