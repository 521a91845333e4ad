package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// joinGroup takes a member in, or back.
func (c *Core) joinGroup(r *Request, body *kmsg.JoinGroupRequest) {
	if code := c.validateJoin(body); code != kerr.NONE {
		c.fail(nil, r, code)
		return
	}
	g := c.groups[body.Group]
	switch {
	case g == nil && body.MemberID != "":
		c.fail(nil, r, kerr.UNKNOWN_MEMBER_ID)
		return
	case g == nil:
		if g = c.create(body.Group); g == nil {
			c.fail(nil, r, kerr.COORDINATOR_NOT_AVAILABLE)
			return
		}
	case g.consumer != nil && !g.isEmpty():
		c.fail(g, r, kerr.INCONSISTENT_GROUP_PROTOCOL)
		return
	case g.consumer != nil && body.MemberID != "":
		c.fail(g, r, kerr.UNKNOWN_MEMBER_ID)
		return
	}
	if !g.isClassicWith(body) {
		c.fail(g, r, kerr.INCONSISTENT_GROUP_PROTOCOL)
		c.dropIfUnused(g)
		return
	}
	if g.consumer != nil {
		c.becomeClassic(g, body.ProtocolType)
	}
	switch {
	case !c.hasRoom(g.classic, body):
		response := Failure(body, kerr.GROUP_MAX_SIZE_REACHED).(*kmsg.JoinGroupResponse)
		response.MemberID = ""
		c.respond(g, r, response)
	case body.MemberID == "":
		c.joinNew(g, r, body)
	default:
		c.joinKnown(g, r, body)
	}
}

func (c *Core) validateJoin(body *kmsg.JoinGroupRequest) int16 {
	if body.Group == "" || !areNames(&body.Group) {
		return kerr.INVALID_GROUP_ID
	}
	session := time.Duration(body.SessionTimeoutMillis) * time.Millisecond
	if session < c.opts.SessionTimeoutMin || session > c.opts.SessionTimeoutMax {
		return kerr.INVALID_SESSION_TIMEOUT
	}
	size := 0
	for i := range body.Protocols {
		size += len(body.Protocols[i].Name) + len(body.Protocols[i].Metadata)
		if len(body.Protocols[i].Name) > nameBytesMax {
			return kerr.INVALID_REQUEST
		}
	}
	if size > c.opts.MemberBytesMax || !areNames(&body.MemberID, body.InstanceID, &body.ProtocolType) ||
		body.InstanceID != nil && *body.InstanceID == "" {
		return kerr.INVALID_REQUEST
	}
	return kerr.NONE
}

// isClassicWith tells whether the group can have a member with these protocols. An
// empty consumer group can become what the member wants.
func (g *group) isClassicWith(body *kmsg.JoinGroupRequest) bool {
	if g.consumer != nil {
		return body.ProtocolType != "" && len(body.Protocols) > 0
	}
	return g.classic.supports(body.ProtocolType, body.Protocols)
}

// becomeClassic turns an empty consumer group into a classic one with the same offsets.
func (c *Core) becomeClassic(g *group, protocolType string) {
	c.write(g, g.consumer.tombstones(g.id)...)
	k := newClassicGroup(g, g.consumer.emptySince)
	k.protocolType = protocolType
	g.consumer, g.classic = nil, k
	c.writeClassic(g) // so that its offsets are not taken for those of nobody
}

// dropIfUnused forgets a group that never came to anything.
func (c *Core) dropIfUnused(g *group) {
	k := g.classic
	if k != nil && k.state == stateEmpty && !k.persisted && len(k.pending) == 0 && len(g.offsets) == 0 {
		c.drop(g)
	}
}

// hasRoom bounds the group. While it rebalances only those that joined count, so
// that the first come are in.
func (c *Core) hasRoom(k *classicGroup, body *kmsg.JoinGroupRequest) bool {
	member := body.MemberID
	if body.InstanceID != nil && k.static[*body.InstanceID] != "" {
		return true // it takes a place that is its own
	}
	m := k.members[member]
	if k.state == statePreparing {
		return m != nil && m.join != nil || k.pending[member] != nil || k.awaitingJoin()+len(k.pending) < c.opts.MembersMax
	}
	return m != nil || k.pending[member] != nil || len(k.members)+len(k.pending) < c.opts.MembersMax
}

// joinNew takes in a client that has no member id. From v4 on a dynamic one has to
// come back with the id it is given, so that clients that go away in between leave
// no member behind.
func (c *Core) joinNew(g *group, r *Request, body *kmsg.JoinGroupRequest) {
	k := g.classic
	if body.InstanceID != nil {
		id := *body.InstanceID + "-" + c.opts.NewID()
		if old := k.members[k.static[*body.InstanceID]]; old != nil {
			c.replaceStatic(g, old, id, r, body)
			return
		}
		c.addMember(g, id, r, body)
		return
	}
	id := r.ClientID + "-" + c.opts.NewID()
	if body.Version < 4 {
		c.addMember(g, id, r, body)
		return
	}
	t := &timer{kind: timerPending, group: g, member: id}
	k.pending[id] = t
	c.timers.start(t, c.now.Add(time.Duration(body.SessionTimeoutMillis)*time.Millisecond))
	response := Failure(body, kerr.MEMBER_ID_REQUIRED).(*kmsg.JoinGroupResponse)
	response.MemberID = id
	c.respond(g, r, response)
}

// joinKnown takes in a pending member, or one that was in the group before.
func (c *Core) joinKnown(g *group, r *Request, body *kmsg.JoinGroupRequest) {
	k := g.classic
	if t := k.pending[body.MemberID]; t != nil && body.InstanceID == nil {
		c.timers.stop(t)
		delete(k.pending, body.MemberID)
		c.addMember(g, body.MemberID, r, body)
		return
	}
	if code := k.validate(body.MemberID, body.InstanceID); code != kerr.NONE {
		c.fail(g, r, code)
		return
	}
	m := k.members[body.MemberID]
	same := m.matches(body.Protocols)
	switch {
	case k.state == stateCompleting && same, k.state == stateStable && same && m.id != k.leader:
		// Its answer was lost, or it only wants to know.
		c.respond(g, r, k.present(m, body))
		c.touch(m)
	default:
		c.updateMember(g, m, r, body)
	}
}

func (c *Core) addMember(g *group, id string, r *Request, body *kmsg.JoinGroupRequest) {
	k := g.classic
	k.joined++
	m := &classicMember{id: id, instance: body.InstanceID, order: k.joined, isNew: true}
	m.session = timer{kind: timerSession, group: g, member: id}
	m.take(r, body)
	if k.state == stateEmpty {
		k.protocolType = body.ProtocolType
	}
	k.members[id] = m
	if m.instance != nil {
		k.static[*m.instance] = id
	}
	if k.leader == "" {
		k.leader = id
	}
	k.added = true
	m.join = r
	c.timers.start(&m.session, c.now.Add(c.opts.NewMemberJoinTimeout))
	c.rebalance(g)
}

// updateMember lets a member take part in the next rebalance.
func (c *Core) updateMember(g *group, m *classicMember, r *Request, body *kmsg.JoinGroupRequest) {
	m.take(r, body)
	if m.join != nil {
		// The client gave up on its former request: only one can be answered well.
		c.fail(g, m.join, kerr.REBALANCE_IN_PROGRESS)
	}
	m.join = r
	c.rebalance(g)
}

// replaceStatic gives the place of a static member to a new incarnation of it. The
// old one is fenced. A stable group notices only when the choice of protocol changes.
func (c *Core) replaceStatic(g *group, old *classicMember, id string, r *Request, body *kmsg.JoinGroupRequest) {
	k := g.classic
	for _, waits := range []*Request{old.join, old.sync} {
		if waits != nil {
			c.fail(g, waits, kerr.FENCED_INSTANCE_ID)
		}
	}
	c.timers.stop(&old.session)
	formerLeader := k.leader
	m := *old
	m.id, m.join, m.sync, m.isNew = id, nil, nil, false
	m.session = timer{kind: timerSession, group: g, member: id}
	delete(k.members, old.id)
	k.members[id] = &m
	k.static[*m.instance] = id
	if k.leader == old.id {
		k.leader = id
	}
	m.take(r, body)
	c.touch(&m)
	if k.state != stateStable || k.choose() != k.protocol {
		m.join = r
		c.rebalance(g)
		return
	}
	c.writeClassic(g)
	response := k.present(&m, body)
	if body.Version >= 9 {
		response.SkipAssignment = k.leader == id
	} else {
		// It must not think that it has to assign anything: it was told that the
		// other one leads, which is it itself, before.
		response.LeaderID = formerLeader
		response.Members = nil
	}
	c.respond(g, r, response)
}

// present is what a member is told about the present generation.
func (k *classicGroup) present(m *classicMember, body *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	response := body.ResponseKind().(*kmsg.JoinGroupResponse)
	response.Generation, response.LeaderID, response.MemberID = k.generation, k.leader, m.id
	response.ProtocolType, response.Protocol = &k.protocolType, kmsg.StringPtr(k.protocol)
	response.Members = []kmsg.JoinGroupResponseMember{}
	if m.id != k.leader {
		return response
	}
	for _, other := range k.sorted() {
		one := kmsg.NewJoinGroupResponseMember()
		one.MemberID, one.InstanceID, one.ProtocolMetadata = other.id, other.instance, other.metadata(k.protocol)
		response.Members = append(response.Members, one)
	}
	return response
}
