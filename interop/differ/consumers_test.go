package differ

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func consumerScenarios() []scenario {
	return []scenario{
		{"consumer-one", playConsumerOne},
		{"consumer-two", playConsumerTwo},
		{"consumer-bad", playConsumerBad},
		{"consumer-static", playConsumerStatic},
		{"consumer-regex", playConsumerRegex},
		{"consumer-classic", playConsumerClassic},
		{"consumer-range", playConsumerRange},
	}
}

type beat = kmsg.ConsumerGroupHeartbeatRequest

// beatOf is a heartbeat in which nothing has changed.
func beatOf(group, member string, epoch int32) *beat {
	q := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	q.Group, q.MemberID, q.MemberEpoch, q.RebalanceTimeoutMillis = group, member, epoch, -1
	return q
}

// joinBeat enters a group.
func joinBeat(group, member string, topics ...string) *beat {
	q := beatOf(group, member, 0)
	q.RebalanceTimeoutMillis, q.SubscribedTopicNames, q.Topics = 15000, topics, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return q
}

// owning says what the member has.
func (p *play) owning(q *beat, topic string, partitions ...int32) *beat {
	q.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if len(partitions) > 0 {
		t := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		t.TopicID, t.Partitions = p.id(topic), partitions
		q.Topics = append(q.Topics, t)
	}
	return q
}

// beat sends a heartbeat and notes the answer.
func (p *play) beat(label string, q *beat) *kmsg.ConsumerGroupHeartbeatResponse {
	return p.beatVersion(label, q, p.newest(kmsg.ConsumerGroupHeartbeat, -1))
}

func (p *play) beatVersion(label string, q *beat, v int16) *kmsg.ConsumerGroupHeartbeatResponse {
	if _, ok := p.names.strings[q.MemberID]; !ok {
		p.names.text(q.MemberID, "member "+q.MemberID)
	}
	r, err := p.quietly(q, v)
	label = fmt.Sprintf("%s v%d", label, v)
	if err != nil {
		p.note(label, lost(err))
		panic(endOfPlay{})
	}
	h := r.(*kmsg.ConsumerGroupHeartbeatResponse)
	p.nameMembers(h)
	if h.Assignment != nil {
		for _, t := range h.Assignment.Topics {
			slices.Sort(t.Partitions)
		}
	}
	p.note(label, p.names.lines(h)...)
	return h
}

func describeConsumers(groups ...string) *kmsg.ConsumerGroupDescribeRequest {
	q := kmsg.NewPtrConsumerGroupDescribeRequest()
	q.Groups, q.IncludeAuthorizedOperations = groups, true
	return q
}

func playConsumerOne(p *play) {
	p.topic(p.name(), 2)
	p.coordinator(p.name())
	for _, v := range p.versions(kmsg.ConsumerGroupHeartbeat) {
		p.names.epochs = nil // those of another group
		group, member := p.name(v), "m"
		if v == 0 {
			member = ""
		}
		r := p.beatVersion("join", joinBeat(group, member, p.name()), v)
		if r.ErrorCode != 0 {
			continue
		}
		if r.MemberID != nil {
			member = *r.MemberID
		}
		p.beatVersion("leave at once", beatOf(group, member, -1), v)
		r = p.beatVersion("join once more", joinBeat(group, "m2", p.name()), v)
		member = "m2"
		epoch := r.MemberEpoch
		p.beatVersion("nothing new", beatOf(group, member, epoch), v)
		p.beatVersion("owning", p.owning(beatOf(group, member, epoch), p.name(), 0, 1), v)
		p.ask("described", describeConsumers(group))
		p.ask("described as classic", describeGroups(group))
		p.beatVersion("epoch too high", beatOf(group, member, epoch+5), v)
		p.beatVersion("epoch too low", beatOf(group, member, epoch-1), v)
		p.beatVersion("join again", joinBeat(group, member, p.name()), v)
		q := commitOf(group, p.name(), 0, 4)
		q.MemberID, q.Generation = member, epoch
		p.askVersion("commit", q, p.newest(kmsg.OffsetCommit, 9))
		q.Generation = epoch + 3
		p.askVersion("commit of an epoch too high", q, p.newest(kmsg.OffsetCommit, 9))
		q.Generation = epoch
		p.askVersion("commit in an old version", q, p.newest(kmsg.OffsetCommit, 8))
		f := offsetFetchOf(group, p.name(), 0)
		f.Groups[0].MemberID, f.Groups[0].MemberEpoch = ptr(member), epoch
		p.askVersion("fetch", f, p.newest(kmsg.OffsetFetch, 9))
		f.Groups[0].MemberEpoch = epoch + 1
		p.askVersion("fetch of an epoch too high", f, p.newest(kmsg.OffsetFetch, 9))
		p.beatVersion("leave", beatOf(group, member, -1), v)
		p.beatVersion("after leaving", beatOf(group, member, epoch), v)
		p.ask("empty", describeConsumers(group))
		p.beatVersion("leave again", beatOf(group, member, -1), v)
	}
}

// playConsumerTwo moves partitions from one member to another.
func playConsumerTwo(p *play) {
	p.topic(p.name(), 4)
	p.topic(p.name("more"), 1)
	p.coordinator(p.name())
	group := p.name()
	a := p.beat("a joins", joinBeat(group, "a", p.name()))
	if a.ErrorCode != 0 {
		return
	}
	p.beat("a has all", p.owning(beatOf(group, "a", a.MemberEpoch), p.name(), 0, 1, 2, 3))
	b := p.beat("b joins", joinBeat(group, "b", p.name()))
	p.ask("described", describeConsumers(group))
	ra := p.beat("a is to give some", beatOf(group, "a", a.MemberEpoch))
	p.beat("b waits", beatOf(group, "b", b.MemberEpoch))
	if ra.Assignment == nil || len(ra.Assignment.Topics) == 0 {
		return
	}
	kept := ra.Assignment.Topics[0].Partitions
	ra = p.beat("a still has all", p.owning(beatOf(group, "a", ra.MemberEpoch), p.name(), 0, 1, 2, 3))
	ra = p.beat("a gave some", p.owning(beatOf(group, "a", ra.MemberEpoch), p.name(), kept...))
	b = p.beat("b gets some", beatOf(group, "b", b.MemberEpoch))
	p.beat("b again", beatOf(group, "b", b.MemberEpoch))
	p.ask("both", describeConsumers(group))
	p.beat("a leaves", beatOf(group, "a", -1))
	b = p.beat("b gets all", beatOf(group, "b", b.MemberEpoch))
	p.beat("b with the old epoch", beatOf(group, "b", b.MemberEpoch-1))
	q := beatOf(group, "b", b.MemberEpoch)
	q.SubscribedTopicNames = []string{p.name(), p.name("more")}
	b = p.beat("b wants more", q)
	q = beatOf(group, "b", b.MemberEpoch)
	q.SubscribedTopicNames = []string{p.name("more")}
	p.beat("b wants less", q)
	p.ask("afterwards", describeConsumers(group))
}

func playConsumerBad(p *play) {
	p.topic(p.name(), 1)
	p.coordinator(p.name())
	for _, v := range p.versions(kmsg.ConsumerGroupHeartbeat) {
		ask := func(label string, change func(q *beat)) {
			p.names.epochs = nil // each has a group of its own
			q := joinBeat(p.name(v, strings.ReplaceAll(label, " ", "-")), "m", p.name())
			change(q)
			p.beatVersion(label, q, v)
		}
		ask("no group", func(q *beat) { q.Group = "" })
		ask("blank group", func(q *beat) { q.Group = "  " })
		ask("no member", func(q *beat) { q.MemberID = "" })
		ask("no timeout", func(q *beat) { q.RebalanceTimeoutMillis = -1 })
		ask("no topics owned", func(q *beat) { q.Topics = nil })
		ask("owns some", func(q *beat) { p.owning(q, p.name(), 0) })
		ask("no subscription", func(q *beat) { q.SubscribedTopicNames = nil })
		ask("unknown assignor", func(q *beat) { q.ServerAssignor = ptr("best") })
		ask("empty assignor", func(q *beat) { q.ServerAssignor = ptr("") })
		ask("empty instance", func(q *beat) { q.InstanceID = ptr("") })
		ask("empty rack", func(q *beat) { q.RackID = ptr("") })
		ask("stranger", func(q *beat) { q.MemberEpoch = 5 })
		ask("epoch below all", func(q *beat) { q.MemberEpoch = -3 })
		ask("leave for a while without instance", func(q *beat) { q.MemberEpoch = -2 })
		ask("stranger leaves", func(q *beat) { q.MemberEpoch = -1 })
		ask("empty subscription", func(q *beat) { q.SubscribedTopicNames = []string{} })
		ask("missing topic", func(q *beat) { q.MemberID, q.SubscribedTopicNames = "m2", []string{p.name("missing")} })
	}
	p.ask("unknown group", describeConsumers(p.name("none"), ""))
}

func playConsumerStatic(p *play) {
	p.topic(p.name(), 2)
	p.coordinator(p.name())
	group := p.name()
	with := func(q *beat) *beat {
		q.InstanceID = ptr("instance")
		return q
	}
	a := p.beat("join", with(joinBeat(group, "a", p.name())))
	if a.ErrorCode != 0 {
		return
	}
	p.beat("the instance is taken", with(joinBeat(group, "b", p.name())))
	p.beat("away for a while", with(beatOf(group, "a", -2)))
	p.ask("described", describeConsumers(group))
	b := p.beat("back as another", with(joinBeat(group, "b", p.name())))
	p.beat("the old one", with(beatOf(group, "a", a.MemberEpoch)))
	p.beat("unknown instance", func() *beat {
		q := beatOf(group, "b", b.MemberEpoch)
		q.InstanceID = ptr("another")
		return q
	}())
	p.beat("leaves", with(beatOf(group, "b", -1)))
	p.ask("empty", describeConsumers(group))
}

func playConsumerRegex(p *play) {
	p.topic(p.name("-one"), 1)
	p.topic(p.name("-two"), 1)
	p.coordinator(p.name())
	if !p.has(kmsg.ConsumerGroupHeartbeat, 1) {
		return
	}
	join := func(label, member, regex string) *kmsg.ConsumerGroupHeartbeatResponse {
		q := joinBeat(p.name(), member)
		q.SubscribedTopicNames, q.SubscribedTopicRegex = nil, &regex
		return p.beat(label, q)
	}
	join("bad expression", "a", "[")
	join("bad repetition", "a", "a**")
	join("looks behind", "a", "(?<=a)b")
	r := join("good", "a", p.name()+"-(one|two)")
	if r.ErrorCode != 0 {
		return
	}
	// The pattern is looked up in time, not at once.
	epoch, last := r.MemberEpoch, r
	for range 40 {
		if last.Assignment != nil && len(last.Assignment.Topics) == 2 {
			break
		}
		last = must[*kmsg.ConsumerGroupHeartbeatResponse](p, beatOf(p.name(), "a", epoch))
		epoch = max(epoch, last.MemberEpoch)
	}
	if last.Assignment != nil {
		p.note("assigned", fmt.Sprint(len(last.Assignment.Topics), " topics"))
	}
	r2 := must[*kmsg.ConsumerGroupDescribeResponse](p, describeConsumers(p.name()))
	if len(r2.Groups) == 1 && len(r2.Groups[0].Members) == 1 {
		m := r2.Groups[0].Members[0]
		p.note("described", or(m.SubscribedTopicRegex, "null"), fmt.Sprint(m.SubscribedTopics))
	}
}

// playConsumerClassic has members of both protocols in one group.
func playConsumerClassic(p *play) {
	p.topic(p.name(), 2)
	p.coordinator(p.name())
	v := p.newest(kmsg.JoinGroup, -1)
	// A classic group with a member.
	c := p.caller("classic")
	r := c.enter(p.name("-classic"), v, "range")
	c.ask("sync", syncOf(p.name("-classic"), r.MemberID, r.Generation, r.MemberID, "work"), p.newest(kmsg.SyncGroup, -1))
	p.beat("a classic group", joinBeat(p.name("-classic"), "m", p.name()))
	p.ask("classic, described", describeConsumers(p.name("-classic")))
	c.ask("leave", leaveOf(p.name("-classic"), r.MemberID), p.newest(kmsg.LeaveGroup, 2))
	p.beat("an empty classic group", joinBeat(p.name("-classic"), "m", p.name()))
	p.ask("converted", describeConsumers(p.name("-classic")))
	// A consumer group with a member.
	p.beat("join", joinBeat(p.name(), "m", p.name()))
	c.ask("a classic member of unknown protocol", joinOf(p.name(), "", "range"), v)
	c.ask("heartbeat", heartbeatOf(p.name(), "m", 1), p.newest(kmsg.Heartbeat, -1))
	c.ask("leave as a classic member", leaveOf(p.name(), "m"), p.newest(kmsg.LeaveGroup, -1))
	p.beat("leave", beatOf(p.name(), "m", -1))
	c.ask("an empty consumer group", joinOf(p.name(), "", "range"), v)
	p.ask("described", describeGroups(p.name()))
}

func playConsumerRange(p *play) {
	p.topic(p.name(), 5)
	p.coordinator(p.name())
	group := p.name()
	with := func(q *beat) *beat {
		q.ServerAssignor = ptr("range")
		return q
	}
	a := p.beat("a joins", with(joinBeat(group, "a", p.name())))
	if a.ErrorCode != 0 {
		return
	}
	b := p.beat("b joins", with(joinBeat(group, "b", p.name())))
	a = p.beat("a gives", beatOf(group, "a", a.MemberEpoch))
	a = p.beat("a gave", p.owning(beatOf(group, "a", a.MemberEpoch), p.name(), 0, 1, 2))
	p.beat("b gets", beatOf(group, "b", b.MemberEpoch))
	p.ask("described", describeConsumers(group))
}
