package differ

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func classicScenarios() []scenario {
	return []scenario{
		{"coordinator", playCoordinator},
		{"classic-one", playClassicOne},
		{"classic-bad", playClassicBad},
		{"classic-two", playClassicTwo},
		{"classic-static", playClassicStatic},
		{"classic-protocols", playClassicProtocols},
		{"classic-leave", playClassicLeave},
	}
}

func playCoordinator(p *play) {
	p.coordinator(p.name())
	for _, v := range p.versions(kmsg.FindCoordinator) {
		p.askVersion("group", findOf(0, p.name()), v)
		p.askVersion("no name", findOf(0, ""), v)
		if v >= 1 {
			p.askVersion("unknown kind", findOf(9, p.name()), v)
		}
		if v >= 4 {
			p.askVersion("three", findOf(0, p.name(), p.name("b"), ""), v)
			p.askVersion("twice", findOf(0, p.name(), p.name()), v)
			p.askVersion("none", findOf(0), v)
		}
	}
}

func joinOf(group, member string, protocols ...string) *kmsg.JoinGroupRequest {
	q := kmsg.NewPtrJoinGroupRequest()
	q.Group, q.MemberID, q.ProtocolType = group, member, "consumer"
	q.SessionTimeoutMillis, q.RebalanceTimeoutMillis = 20000, 15000
	for _, name := range protocols {
		pr := kmsg.NewJoinGroupRequestProtocol()
		pr.Name, pr.Metadata = name, []byte("metadata of "+name)
		q.Protocols = append(q.Protocols, pr)
	}
	return q
}

func syncOf(group, member string, generation int32, assignments ...string) *kmsg.SyncGroupRequest {
	q := kmsg.NewPtrSyncGroupRequest()
	q.Group, q.MemberID, q.Generation = group, member, generation
	q.ProtocolType, q.Protocol = ptr("consumer"), ptr("range")
	for i := 0; i+1 < len(assignments); i += 2 {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = assignments[i], []byte(assignments[i+1])
		q.GroupAssignment = append(q.GroupAssignment, a)
	}
	return q
}

func heartbeatOf(group, member string, generation int32) *kmsg.HeartbeatRequest {
	q := kmsg.NewPtrHeartbeatRequest()
	q.Group, q.MemberID, q.Generation = group, member, generation
	return q
}

func leaveOf(group string, members ...string) *kmsg.LeaveGroupRequest {
	q := kmsg.NewPtrLeaveGroupRequest()
	q.Group = group
	for _, member := range members {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = member
		q.MemberID, q.Members = member, append(q.Members, m)
	}
	return q
}

// enter has a caller join a group that has nobody waiting, whatever it takes.
func (c *caller) enter(group string, version int16, protocols ...string) *kmsg.JoinGroupResponse {
	r := c.ask("join", joinOf(group, "", protocols...), version).(*kmsg.JoinGroupResponse)
	if r.ErrorCode == 79 { // MEMBER_ID_REQUIRED
		r = c.ask("join with id", joinOf(group, r.MemberID, protocols...), version).(*kmsg.JoinGroupResponse)
	}
	return r
}

func describeGroups(groups ...string) *kmsg.DescribeGroupsRequest {
	q := kmsg.NewPtrDescribeGroupsRequest()
	q.Groups, q.IncludeAuthorizedOperations = groups, true
	return q
}

// companion is the version of another request of the same age.
func (p *play) companion(key kmsg.Key, version int16) int16 { return p.newest(key, version) }

func playClassicOne(p *play) {
	p.coordinator(p.name())
	for _, v := range p.versions(kmsg.JoinGroup) {
		group := p.name(v)
		c := p.caller("a")
		r := c.enter(group, v, "range", "sticky")
		sync, beat, leave := p.companion(kmsg.SyncGroup, v), p.companion(kmsg.Heartbeat, v), p.companion(kmsg.LeaveGroup, v)
		c.ask("too early", heartbeatOf(group, r.MemberID, r.Generation), beat)
		c.ask("sync", syncOf(group, r.MemberID, r.Generation, r.MemberID, "work"), sync)
		c.ask("sync again", syncOf(group, r.MemberID, r.Generation), sync)
		c.ask("alive", heartbeatOf(group, r.MemberID, r.Generation), beat)
		c.ask("wrong generation", heartbeatOf(group, r.MemberID, r.Generation+1), beat)
		c.ask("wrong member", heartbeatOf(group, "nobody", r.Generation), beat)
		c.ask("sync of a wrong generation", syncOf(group, r.MemberID, 99), sync)
		c.ask("sync of a wrong member", syncOf(group, "nobody", r.Generation), sync)
		for _, dv := range p.versions(kmsg.DescribeGroups) {
			p.askVersion("stable", describeGroups(group), dv)
		}
		r = c.ask("join again", joinOf(group, r.MemberID, "range", "sticky"), v).(*kmsg.JoinGroupResponse)
		c.ask("describe between", describeGroups(group), p.newest(kmsg.DescribeGroups, -1))
		c.ask("sync again", syncOf(group, r.MemberID, r.Generation, r.MemberID, "work2", "nobody", "x"), sync)
		c.ask("leave", leaveOf(group, r.MemberID), leave)
		c.ask("leave again", leaveOf(group, r.MemberID), leave)
		c.ask("after leaving", heartbeatOf(group, r.MemberID, r.Generation), beat)
		c.ask("join with the old id", joinOf(group, r.MemberID, "range"), v)
		p.ask("empty", describeGroups(group))
		c.conn.close()
	}
}

func playClassicBad(p *play) {
	p.coordinator(p.name())
	c := p.caller("a")
	for _, v := range p.versions(kmsg.JoinGroup) {
		join := func(label string, change func(q *kmsg.JoinGroupRequest)) {
			q := joinOf(p.name(v, strings.ReplaceAll(label, " ", "-")), "", "range")
			change(q)
			c.ask(label, q, v)
		}
		type request = kmsg.JoinGroupRequest
		join("no group", func(q *request) { q.Group = "" })
		join("short session", func(q *request) { q.SessionTimeoutMillis = 10 })
		join("long session", func(q *request) { q.SessionTimeoutMillis = 1 << 30 })
		join("negative session", func(q *request) { q.SessionTimeoutMillis = -1 })
		join("unknown member", func(q *request) { q.MemberID = "nobody" })
		join("no protocols", func(q *request) { q.Protocols = nil })
		join("no protocol type", func(q *request) { q.ProtocolType = "" })
		if v >= 5 {
			join("empty instance", func(q *request) { q.InstanceID = ptr("") })
			join("bad instance", func(q *request) { q.InstanceID = ptr("a/b") })
			join("long instance", func(q *request) { q.InstanceID = ptr(strings.Repeat("x", 250)) })
			join("unknown member with instance", func(q *request) { q.InstanceID, q.MemberID = ptr("i"), "nobody" })
		}
	}
	for _, v := range p.versions(kmsg.SyncGroup) {
		c.ask("unknown group", syncOf(p.name("missing"), "m", 1), v)
		c.ask("no group", syncOf("", "m", 1), v)
		c.ask("no member", syncOf(p.name("missing"), "", 1), v)
	}
	for _, v := range p.versions(kmsg.Heartbeat) {
		c.ask("unknown group", heartbeatOf(p.name("missing"), "m", 1), v)
		c.ask("no group", heartbeatOf("", "m", 1), v)
	}
	for _, v := range p.versions(kmsg.LeaveGroup) {
		c.ask("unknown group", leaveOf(p.name("missing"), "m"), v)
		c.ask("no group", leaveOf("", "m"), v)
		if v >= 3 {
			c.ask("nobody", leaveOf(p.name("missing")), v)
		}
	}
}

// playClassicTwo goes through a rebalance of two members.
func playClassicTwo(p *play) {
	p.coordinator(p.name())
	for _, v := range p.versions(kmsg.JoinGroup) {
		group := p.name(v)
		sync, beat, leave := p.companion(kmsg.SyncGroup, v), p.companion(kmsg.Heartbeat, v), p.companion(kmsg.LeaveGroup, v)
		a, b := p.caller("a"), p.caller("b")
		ra := a.enter(group, v, "range", "sticky")
		a.ask("sync", syncOf(group, ra.MemberID, ra.Generation, ra.MemberID, "all"), sync)
		a.ask("join unchanged", joinOf(group, ra.MemberID, "range", "sticky"), v)
		a.ask("sync", syncOf(group, ra.MemberID, ra.Generation+1, ra.MemberID, "all"), sync)
		joinB := joinOf(group, "", "range", "roundrobin")
		if v >= 4 {
			rb := b.ask("join", joinB, v).(*kmsg.JoinGroupResponse)
			joinB = joinOf(group, rb.MemberID, "range", "roundrobin")
		}
		b.send(joinB, v)
		p.awaitGroup(group, "PreparingRebalance", 2)
		p.ask("preparing", describeGroups(group))
		a.ask("is told", heartbeatOf(group, ra.MemberID, ra.Generation+1), beat)
		a.ask("sync while preparing", syncOf(group, ra.MemberID, ra.Generation+1), sync)
		ra = a.ask("join", joinOf(group, ra.MemberID, "range", "sticky"), v).(*kmsg.JoinGroupResponse)
		rb := b.receive("joined").(*kmsg.JoinGroupResponse)
		b.ask("join again while completing", joinOf(group, rb.MemberID, "range", "roundrobin"), v)
		p.ask("completing", describeGroups(group))
		b.send(syncOf(group, rb.MemberID, rb.Generation), sync)
		a.ask("alive while completing", heartbeatOf(group, ra.MemberID, ra.Generation), beat)
		a.ask("sync", syncOf(group, ra.MemberID, ra.Generation, ra.MemberID, "half", rb.MemberID, "other half"), sync)
		b.receive("synced")
		p.ask("stable", describeGroups(group))
		b.ask("a member joins unchanged", joinOf(group, rb.MemberID, "range", "roundrobin"), v)
		a.ask("leave", leaveOf(group, ra.MemberID), leave)
		b.ask("is told", heartbeatOf(group, rb.MemberID, rb.Generation), beat)
		rb = b.ask("join", joinOf(group, rb.MemberID, "range", "roundrobin"), v).(*kmsg.JoinGroupResponse)
		b.ask("sync", syncOf(group, rb.MemberID, rb.Generation, rb.MemberID, "all"), sync)
		a.conn.close()
		b.conn.close()
	}
}

// playClassicStatic is about members with an instance id.
func playClassicStatic(p *play) {
	p.coordinator(p.name())
	for _, v := range p.versions(kmsg.JoinGroup) {
		if v < 5 {
			continue
		}
		group := p.name(v)
		sync, beat, leave := p.companion(kmsg.SyncGroup, v), p.companion(kmsg.Heartbeat, v), p.companion(kmsg.LeaveGroup, v)
		a, b := p.caller("a"), p.caller("b")
		join := func(c *caller, label, member string) *kmsg.JoinGroupResponse {
			q := joinOf(group, member, "range")
			q.InstanceID = ptr("instance")
			return c.ask(label, q, v).(*kmsg.JoinGroupResponse)
		}
		r := join(a, "join", "")
		s := syncOf(group, r.MemberID, r.Generation, r.MemberID, "work")
		s.InstanceID = ptr("instance")
		a.ask("sync", s, sync)
		again := join(b, "the same instance", "")
		p.ask("replaced", describeGroups(group))
		s = syncOf(group, again.MemberID, again.Generation, again.MemberID, "work")
		s.InstanceID = ptr("instance")
		b.ask("sync", s, sync)
		h := heartbeatOf(group, r.MemberID, r.Generation)
		h.InstanceID = ptr("instance")
		a.ask("the old one is fenced", h, beat)
		h = heartbeatOf(group, again.MemberID, again.Generation)
		h.InstanceID = ptr("another")
		b.ask("unknown instance", h, beat)
		join(a, "the old one joins", r.MemberID)
		commit := commitOf(group, p.name("missing"), 0, 5)
		commit.MemberID, commit.Generation, commit.InstanceID = r.MemberID, r.Generation, ptr("instance")
		a.ask("the old one commits", commit, p.newest(kmsg.OffsetCommit, 8))
		if leave >= 3 {
			q := leaveOf(group, "")
			q.Members[0].InstanceID = ptr("nobody")
			p.askVersion("unknown instance leaves", q, leave)
			q.Members[0].InstanceID, q.Members[0].MemberID = ptr("instance"), r.MemberID
			p.askVersion("fenced member leaves", q, leave)
			q.Members[0].MemberID = ""
			p.askVersion("instance leaves", q, leave)
		}
		p.ask("empty", describeGroups(group))
		a.conn.close()
		b.conn.close()
	}
}

// playClassicProtocols chooses protocols.
func playClassicProtocols(p *play) {
	p.coordinator(p.name())
	v, sync := p.newest(kmsg.JoinGroup, -1), p.newest(kmsg.SyncGroup, -1)
	a, b := p.caller("a"), p.caller("b")
	ra := a.enter(p.name(), v, "range", "sticky")
	s := syncOf(p.name(), ra.MemberID, ra.Generation, ra.MemberID, "work")
	s.ProtocolType = ptr("other")
	a.ask("sync of another type", s, sync)
	s.ProtocolType, s.Protocol = ptr("consumer"), ptr("sticky")
	a.ask("sync of another protocol", s, sync)
	a.ask("sync", syncOf(p.name(), ra.MemberID, ra.Generation, ra.MemberID, "work"), sync)
	b.ask("no common protocol", joinOf(p.name(), "", "roundrobin"), v)
	q := joinOf(p.name(), "", "range")
	q.ProtocolType = "connect"
	b.ask("another type", q, v)
	rb := b.ask("join", joinOf(p.name(), "", "sticky"), v).(*kmsg.JoinGroupResponse)
	b.send(joinOf(p.name(), rb.MemberID, "sticky"), v)
	p.awaitGroup(p.name(), "PreparingRebalance", 2)
	a.ask("join", joinOf(p.name(), ra.MemberID, "range", "sticky"), v)
	b.receive("joined")
	p.ask("described", describeGroups(p.name()))
}

// playClassicLeave has several members leave at once.
func playClassicLeave(p *play) {
	p.coordinator(p.name())
	v := p.newest(kmsg.JoinGroup, -1)
	leave := p.newest(kmsg.LeaveGroup, -1)
	a, b := p.caller("a"), p.caller("b")
	ra := a.enter(p.name(), v, "range")
	rb := b.ask("join", joinOf(p.name(), "", "range"), v).(*kmsg.JoinGroupResponse)
	p.ask("pending members leave", leaveOf(p.name(), rb.MemberID))
	b.ask("join after leaving", joinOf(p.name(), rb.MemberID, "range"), v)
	p.askVersion("some leave", leaveOf(p.name(), "nobody", ra.MemberID, fmt.Sprint("nobody", 2)), leave)
	p.ask("described", describeGroups(p.name()))
}
