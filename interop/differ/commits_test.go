package differ

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func commitScenarios() []scenario {
	return []scenario{
		{"commit-simple", playCommitSimple},
		{"commit-members", playCommitMembers},
		{"offset-fetch", playOffsetFetch},
		{"offset-delete", playOffsetDelete},
	}
}

// byTopicID is the version of OffsetCommit and OffsetFetch from which topics have ids.
const byTopicID = 10

func commitOf(group, topic string, partition int32, offset int64) *kmsg.OffsetCommitRequest {
	q := kmsg.NewPtrOffsetCommitRequest()
	q.Group, q.Generation, q.RetentionTimeMillis = group, -1, -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = topic
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset, part.LeaderEpoch, part.Metadata = partition, offset, -1, ptr("")
	t.Partitions = append(t.Partitions, part)
	q.Topics = append(q.Topics, t)
	return q
}

// offsetFetchOf asks for partitions, given as topic and number, or without any for all.
func offsetFetchOf(group string, partitions ...any) *kmsg.OffsetFetchRequest {
	q := kmsg.NewPtrOffsetFetchRequest()
	q.Group = group
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	for i := 0; i+1 < len(partitions); i += 2 {
		topic, number := partitions[i].(string), int32(partitions[i+1].(int))
		t := kmsg.NewOffsetFetchRequestTopic()
		t.Topic, t.Partitions = topic, []int32{number}
		q.Topics = append(q.Topics, t)
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = topic, []int32{number}
		g.Topics = append(g.Topics, gt)
	}
	q.Groups = append(q.Groups, g)
	return q
}

func playCommitSimple(p *play) {
	p.topic(p.name(), 2)
	p.coordinator(p.name())
	for _, v := range p.versions(kmsg.OffsetCommit) {
		if v >= byTopicID {
			break
		}
		group := p.name(v)
		commit := func(label string, change func(q *kmsg.OffsetCommitRequest)) {
			q := commitOf(group, p.name(), 0, 5)
			change(q)
			p.askVersion(label, q, v)
		}
		type request = kmsg.OffsetCommitRequest
		part := func(q *request) *kmsg.OffsetCommitRequestTopicPartition { return &q.Topics[0].Partitions[0] }
		commit("generation of nobody", func(q *request) { q.Generation, q.MemberID = 3, "nobody" })
		commit("member without generation", func(q *request) { q.MemberID = "nobody" })
		commit("good", func(q *request) {})
		commit("back", func(q *request) { part(q).Offset = 2 })
		commit("far", func(q *request) { part(q).Offset = 1 << 50 })
		commit("negative", func(q *request) { part(q).Offset = -1 })
		commit("missing partition", func(q *request) { part(q).Partition = 7 })
		commit("negative partition", func(q *request) { part(q).Partition = -1 })
		commit("missing topic", func(q *request) { q.Topics[0].Topic = p.name("missing") })
		commit("no group", func(q *request) { q.Group = "" })
		commit("metadata", func(q *request) { part(q).Metadata, part(q).LeaderEpoch = ptr("what was read"), p.names.leader })
		commit("null metadata", func(q *request) { part(q).Metadata = nil })
		commit("long metadata", func(q *request) { part(q).Metadata = ptr(strings.Repeat("x", 4097)) })
		commit("nothing", func(q *request) { q.Topics = nil })
		commit("two", func(q *request) {
			q.Topics = append(q.Topics, commitOf("", p.name("missing"), 0, 1).Topics[0])
			q.Topics[0].Partitions = append(q.Topics[0].Partitions, commitOf("", "", 1, 9).Topics[0].Partitions[0])
		})
		p.askVersion("committed", offsetFetchOf(group, p.name(), 0, p.name(), 1), p.newest(kmsg.OffsetFetch, 7))
	}
	p.ask("groups", describeGroups(p.name(p.newest(kmsg.OffsetCommit, 9))))
}

// playCommitMembers commits as a member of a classic group in its states.
func playCommitMembers(p *play) {
	p.topic(p.name(), 1)
	p.coordinator(p.name())
	for _, v := range p.versions(kmsg.OffsetCommit) {
		if v >= byTopicID {
			break
		}
		group := p.name(v)
		join, sync := p.newest(kmsg.JoinGroup, 5), p.newest(kmsg.SyncGroup, 3)
		c := p.caller("a")
		r := c.enter(group, join, "range")
		commit := func(label, member string, generation int32) {
			q := commitOf(group, p.name(), 0, 3)
			q.MemberID, q.Generation = member, generation
			c.ask(label, q, v)
		}
		commit("before sync", r.MemberID, r.Generation)
		c.ask("sync", syncOf(group, r.MemberID, r.Generation, r.MemberID, "work"), sync)
		commit("good", r.MemberID, r.Generation)
		commit("old generation", r.MemberID, r.Generation-1)
		commit("next generation", r.MemberID, r.Generation+1)
		commit("stranger", "nobody", r.Generation)
		commit("no member", "", -1)
		commit("member without generation", r.MemberID, -1)
		b := p.caller("b")
		rb := b.ask("join", joinOf(group, "", "range"), join).(*kmsg.JoinGroupResponse)
		b.send(joinOf(group, rb.MemberID, "range"), join)
		p.awaitGroup(group, "PreparingRebalance", 2)
		commit("while rebalancing", r.MemberID, r.Generation)
		c.ask("leave", leaveOf(group, r.MemberID), p.newest(kmsg.LeaveGroup, 2))
		b.receive("joined")
		commit("after leaving", r.MemberID, r.Generation)
		c.conn.close()
		b.conn.close()
	}
}

func playOffsetFetch(p *play) {
	p.topic(p.name(), 3)
	p.coordinator(p.name())
	q := commitOf(p.name(), p.name(), 1, 7)
	q.Topics[0].Partitions[0].Metadata, q.Topics[0].Partitions[0].LeaderEpoch = ptr("m"), p.names.leader
	commitNow(p, q)
	for _, v := range p.versions(kmsg.OffsetFetch) {
		if v >= byTopicID {
			break
		}
		p.askVersion("some", offsetFetchOf(p.name(), p.name(), 1, p.name(), 0), v)
		p.askVersion("missing", offsetFetchOf(p.name(), p.name(), 9, p.name("missing"), 0), v)
		if v >= 2 {
			p.askVersion("all", offsetFetchOf(p.name()), v)
			p.askVersion("all of nothing", offsetFetchOf(p.name("none")), v)
		}
		none := offsetFetchOf(p.name())
		none.Topics, none.Groups[0].Topics = []kmsg.OffsetFetchRequestTopic{}, []kmsg.OffsetFetchRequestGroupTopic{}
		p.askVersion("none", none, v)
		p.askVersion("unknown group", offsetFetchOf(p.name("none"), p.name(), 1), v)
		p.askVersion("no group", offsetFetchOf("", p.name(), 1), v)
		if v >= 7 {
			q := offsetFetchOf(p.name(), p.name(), 1)
			q.RequireStable = true
			p.askVersion("stable", q, v)
		}
		if v >= 8 {
			q := offsetFetchOf(p.name(), p.name(), 1)
			q.Groups = append(q.Groups, offsetFetchOf(p.name("none"), p.name(), 1).Groups[0], offsetFetchOf(p.name()).Groups[0])
			p.askVersion("three groups", q, v)
			q.Groups = nil
			p.askVersion("no groups", q, v)
		}
		if v >= 9 {
			q := offsetFetchOf(p.name(), p.name(), 1)
			q.Groups[0].MemberID, q.Groups[0].MemberEpoch = ptr("nobody"), 4
			p.askVersion("as a stranger", q, v)
		}
	}
}

// commitNow commits what a scenario needs.
func commitNow(p *play, q *kmsg.OffsetCommitRequest) {
	r, err := p.quietly(q, p.newest(kmsg.OffsetCommit, byTopicID-1))
	if err != nil {
		p.note("preparing offsets", lost(err))
		panic(endOfPlay{})
	}
	if code := r.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
		p.note("preparing offsets", codeName(code))
	}
}

func playOffsetDelete(p *play) {
	p.topic(p.name(), 2)
	p.coordinator(p.name())
	for _, partition := range []int32{0, 1} {
		commitNow(p, commitOf(p.name(), p.name(), partition, 7))
	}
	ask := func(label, group, topic string, partitions ...int32) {
		q := kmsg.NewPtrOffsetDeleteRequest()
		q.Group = group
		t := kmsg.NewOffsetDeleteRequestTopic()
		t.Topic = topic
		for _, n := range partitions {
			part := kmsg.NewOffsetDeleteRequestTopicPartition()
			part.Partition = n
			t.Partitions = append(t.Partitions, part)
		}
		q.Topics = append(q.Topics, t)
		p.ask(label, q)
	}
	ask("unknown group", p.name("none"), p.name(), 0)
	ask("no group", "", p.name(), 0)
	ask("missing topic", p.name(), p.name("missing"), 0)
	ask("missing partition", p.name(), p.name(), 8)
	ask("one", p.name(), p.name(), 0)
	ask("again", p.name(), p.name(), 0)
	p.askVersion("left", offsetFetchOf(p.name(), p.name(), 0, p.name(), 1), p.newest(kmsg.OffsetFetch, 7))
	c := p.caller("a")
	// A member of the consumer protocol type that subscribes to the topic.
	q := joinOf(p.name(), "", "range")
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{p.name()}
	q.Protocols[0].Metadata = meta.AppendTo(nil)
	r := c.ask("join", q, p.newest(kmsg.JoinGroup, -1)).(*kmsg.JoinGroupResponse)
	q.MemberID = r.MemberID
	r = c.ask("join", q, p.newest(kmsg.JoinGroup, -1)).(*kmsg.JoinGroupResponse)
	c.ask("sync", syncOf(p.name(), r.MemberID, r.Generation, r.MemberID, fmt.Sprint("work")), p.newest(kmsg.SyncGroup, -1))
	ask("subscribed", p.name(), p.name(), 1)
}
