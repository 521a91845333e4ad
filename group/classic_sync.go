package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// syncGroup gives members the assignment that the leader brings.
func (c *Core) syncGroup(r *Request, body *kmsg.SyncGroupRequest) {
	g := c.groups[body.Group]
	if g == nil || g.classic == nil {
		c.fail(g, r, unknownOr(body.Group))
		return
	}
	k := g.classic
	code := k.validate(body.MemberID, body.InstanceID)
	switch {
	case code != kerr.NONE:
	case body.Generation != k.generation:
		code = kerr.ILLEGAL_GENERATION
	case body.ProtocolType != nil && *body.ProtocolType != k.protocolType,
		body.Protocol != nil && *body.Protocol != k.protocol:
		code = kerr.INCONSISTENT_GROUP_PROTOCOL
	case k.state == stateEmpty:
		code = kerr.UNKNOWN_MEMBER_ID
	case k.state == statePreparing:
		code = kerr.REBALANCE_IN_PROGRESS
	}
	if code != kerr.NONE {
		c.fail(g, r, code)
		return
	}
	m := k.members[body.MemberID]
	m.unsynced = false
	c.touch(m)
	if k.state == stateStable {
		c.respond(g, r, k.synced(m, body))
		c.maybeStopSync(k)
		return
	}
	if m.sync != nil {
		c.fail(g, m.sync, kerr.REBALANCE_IN_PROGRESS) // the client gave up on that one
	}
	m.sync = r
	if m.id == k.leader {
		c.assign(g, body)
	}
}

// unknownOr is the answer where no group can be.
func unknownOr(id string) int16 {
	if id == "" {
		return kerr.INVALID_GROUP_ID
	}
	return kerr.UNKNOWN_MEMBER_ID
}

// assign takes the leader's assignment and answers all that wait for it. Members
// that the leader left out have an empty one.
func (c *Core) assign(g *group, body *kmsg.SyncGroupRequest) {
	k := g.classic
	given := make(map[string][]byte, len(body.GroupAssignment))
	for i := range body.GroupAssignment {
		given[body.GroupAssignment[i].MemberID] = body.GroupAssignment[i].MemberAssignment
	}
	for _, m := range k.members {
		if m.assignment = given[m.id]; m.assignment == nil {
			m.assignment = []byte{}
		}
	}
	stateAt := k.stateAt
	k.enter(stateStable, c.now)
	if record := k.record(g.id); len(record.Value) > c.opts.RecordBytesMax {
		k.enter(stateCompleting, stateAt)
		for _, m := range k.members {
			m.assignment = nil
		}
		for _, m := range k.sorted() {
			if m.sync != nil {
				c.fail(g, m.sync, kerr.UNKNOWN_SERVER_ERROR)
				m.sync = nil
			}
		}
		c.rebalance(g)
		return
	}
	c.writeClassic(g)
	for _, m := range k.sorted() {
		if m.sync != nil {
			c.respond(g, m.sync, k.synced(m, m.sync.Body.(*kmsg.SyncGroupRequest)))
			m.sync = nil
			c.touch(m)
		}
	}
	c.maybeStopSync(k)
}

// maybeStopSync stops waiting when all members have asked.
func (c *Core) maybeStopSync(k *classicGroup) {
	for _, m := range k.members {
		if m.unsynced {
			return
		}
	}
	c.timers.stop(&k.sync)
}

func (k *classicGroup) synced(m *classicMember, body *kmsg.SyncGroupRequest) *kmsg.SyncGroupResponse {
	response := body.ResponseKind().(*kmsg.SyncGroupResponse)
	response.ProtocolType, response.Protocol = &k.protocolType, kmsg.StringPtr(k.protocol)
	response.MemberAssignment = m.assignment
	return response
}

// heartbeat keeps a member's session and tells it of a rebalance.
func (c *Core) heartbeat(r *Request, body *kmsg.HeartbeatRequest) {
	g := c.groups[body.Group]
	if g == nil || g.classic == nil {
		c.fail(g, r, unknownOr(body.Group))
		return
	}
	k := g.classic
	code := k.validate(body.MemberID, body.InstanceID)
	switch {
	case code != kerr.NONE:
	case body.Generation != k.generation:
		code = kerr.ILLEGAL_GENERATION
	default:
		if k.state == statePreparing {
			code = kerr.REBALANCE_IN_PROGRESS
		}
		if m := k.members[body.MemberID]; !m.isNew {
			c.touch(m)
		}
	}
	c.fail(g, r, code)
}

// leaveGroup removes members at once: one that closes, or several that an
// administrator names, static ones by their instance id.
func (c *Core) leaveGroup(r *Request, body *kmsg.LeaveGroupRequest) {
	response := body.ResponseKind().(*kmsg.LeaveGroupResponse)
	g := c.groups[body.Group]
	if body.Group == "" {
		c.fail(nil, r, kerr.INVALID_GROUP_ID)
		return
	}
	leaving := body.Members
	if body.Version < 3 {
		one := kmsg.NewLeaveGroupRequestMember()
		one.MemberID = body.MemberID
		leaving = []kmsg.LeaveGroupRequestMember{one}
	}
	gone := false
	for i := range leaving {
		one := kmsg.NewLeaveGroupResponseMember()
		one.MemberID, one.InstanceID = leaving[i].MemberID, leaving[i].InstanceID
		one.ErrorCode = kerr.UNKNOWN_MEMBER_ID
		switch {
		case g == nil:
		case g.classic != nil:
			one.ErrorCode = c.leave(g, &leaving[i], &gone)
		default:
			one.ErrorCode = c.leaveConsumer(g, &leaving[i])
		}
		response.Members = append(response.Members, one)
	}
	if gone && g.classic.state != stateEmpty {
		c.rebalance(g)
	}
	if body.Version < 3 {
		response.ErrorCode, response.Members = response.Members[0].ErrorCode, nil
	}
	c.respond(g, r, response)
	if g != nil {
		c.dropIfUnused(g)
	}
}

func (c *Core) leave(g *group, who *kmsg.LeaveGroupRequestMember, gone *bool) int16 {
	k := g.classic
	id := who.MemberID
	if id == "" && who.InstanceID != nil {
		id = k.static[*who.InstanceID]
	}
	if t := k.pending[id]; t != nil && who.InstanceID == nil {
		c.timers.stop(t)
		delete(k.pending, id)
		c.maybeCompleteJoin(g)
		return kerr.NONE
	}
	if code := k.validate(id, who.InstanceID); code != kerr.NONE {
		return code
	}
	c.forget(k, k.members[id])
	*gone = true
	return kerr.NONE
}
