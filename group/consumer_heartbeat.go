package group

import (
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// consumerGroupHeartbeat is all that a member of a consumer group says: that it
// joins, is there, has other wishes, gave partitions up, or leaves.
func (c *Core) consumerGroupHeartbeat(r *Request, body *kmsg.ConsumerGroupHeartbeatRequest) {
	g := c.groups[body.Group]
	code, message := c.validateConsumerHeartbeat(body)
	switch {
	case code != kerr.NONE:
	case g == nil && body.MemberEpoch != 0, g != nil && g.classic != nil && (body.MemberEpoch != 0 || !g.isEmpty()):
		code, message = kerr.GROUP_ID_NOT_FOUND, "there is no consumer group of that id"
	case body.MemberEpoch < 0:
		code, message = c.consumerLeave(g, r, body)
		if code == kerr.NONE {
			return
		}
	case body.MemberEpoch == 0 && g == nil:
		if g = c.create(body.Group); g == nil {
			code, message = kerr.COORDINATOR_NOT_AVAILABLE, "there are too many groups"
		}
	}
	if code == kerr.NONE && g.classic != nil {
		c.becomeConsumer(g)
	}
	var m *consumerMember
	if code == kerr.NONE {
		m, code, message = c.consumerOf(g, body)
	}
	if code != kerr.NONE {
		response := Failure(body, code).(*kmsg.ConsumerGroupHeartbeatResponse)
		if response.ErrorMessage = nil; message != "" {
			response.ErrorMessage = &message
		}
		c.respond(g, r, response)
		return
	}
	c.consumerAlive(g, m, r, body)
}

// validateConsumerHeartbeat looks at the request alone.
func (c *Core) validateConsumerHeartbeat(body *kmsg.ConsumerGroupHeartbeatRequest) (int16, string) {
	size := len(body.MemberID)
	for _, s := range body.SubscribedTopicNames {
		size += len(s)
	}
	for _, s := range []*string{body.InstanceID, body.RackID, body.SubscribedTopicRegex, body.ServerAssignor} {
		if s != nil {
			size += len(*s)
		}
	}
	switch {
	case strings.TrimSpace(body.Group) == "":
		return kerr.INVALID_REQUEST, "the group id is empty"
	case size > c.opts.MemberBytesMax || !areNames(&body.Group, &body.MemberID, body.InstanceID):
		return kerr.INVALID_REQUEST, "the member says too much about itself"
	case body.InstanceID != nil && *body.InstanceID == "", body.RackID != nil && *body.RackID == "":
		return kerr.INVALID_REQUEST, "an instance id or rack is empty instead of null"
	case body.MemberID == "" && (body.Version >= 1 || body.MemberEpoch != 0):
		return kerr.INVALID_REQUEST, "the member id is empty"
	case body.MemberEpoch < epochLeaveStatic:
		return kerr.INVALID_REQUEST, "the member epoch is below -2"
	case body.MemberEpoch == epochLeaveStatic && body.InstanceID == nil:
		return kerr.INVALID_REQUEST, "only a member with an instance id can come back"
	case body.MemberEpoch == 0 && body.RebalanceTimeoutMillis <= 0:
		return kerr.INVALID_REQUEST, "a member that joins must give its rebalance timeout"
	case body.MemberEpoch == 0 && (body.Topics == nil || len(body.Topics) > 0):
		return kerr.INVALID_REQUEST, "a member that joins must own nothing"
	case body.MemberEpoch == 0 && body.SubscribedTopicNames == nil && (body.SubscribedTopicRegex == nil || *body.SubscribedTopicRegex == ""):
		return kerr.INVALID_REQUEST, "a member that joins must subscribe to names or an expression"
	case body.ServerAssignor != nil && !isAssignor(*body.ServerAssignor):
		return kerr.UNSUPPORTED_ASSIGNOR, "the assignors are " + AssignorUniform + " and " + AssignorRange
	}
	if body.SubscribedTopicRegex != nil && *body.SubscribedTopicRegex != "" {
		if len(*body.SubscribedTopicRegex) > regexBytesMax || newPattern(*body.SubscribedTopicRegex).regexp == nil {
			return kerr.INVALID_REGULAR_EXPRESSION, "the expression is not one in RE2 syntax, or too long"
		}
	}
	return kerr.NONE, ""
}

// becomeConsumer turns an empty classic group into a consumer group with the same offsets.
func (c *Core) becomeConsumer(g *group) {
	c.dropPending(g.classic)
	c.write(g, g.tombstones()...)
	g.classic, g.consumer = nil, newConsumerGroup(c.now)
}

// consumerLeave takes a member out, or marks a static one that will be back.
func (c *Core) consumerLeave(g *group, r *Request, body *kmsg.ConsumerGroupHeartbeatRequest) (int16, string) {
	k := g.consumer
	m := k.members[body.MemberID]
	if body.InstanceID != nil {
		owner, ok := k.static[*body.InstanceID]
		switch {
		case !ok:
			return kerr.UNKNOWN_MEMBER_ID, "there is no member of that instance id"
		case owner != body.MemberID:
			return kerr.FENCED_INSTANCE_ID, "another member has that instance id"
		}
	}
	if m == nil {
		return kerr.UNKNOWN_MEMBER_ID, "there is no such member"
	}
	response := body.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	response.MemberID, response.MemberEpoch = &m.id, body.MemberEpoch
	if body.MemberEpoch == epochLeave {
		c.removeConsumers(g, m)
	} else {
		m.epoch, m.state = epochLeaveStatic, memberStable
		k.own(m, m.assigned, owned{}) // the client is gone, and holds nothing back
		c.timers.stop(&m.revoke)
		c.write(g, currentRecord(g.id, m))
	}
	c.respond(g, r, response)
	return kerr.NONE, ""
}

// consumerOf finds the member that a heartbeat is of, or makes it. Between joining and
// leaving, a member need not say its instance id.
func (c *Core) consumerOf(g *group, body *kmsg.ConsumerGroupHeartbeatRequest) (*consumerMember, int16, string) {
	k := g.consumer
	m := k.members[body.MemberID]
	if body.InstanceID != nil {
		owner, known := k.static[*body.InstanceID]
		switch {
		case known && owner == body.MemberID:
		case body.MemberEpoch != 0 && !known:
			return nil, kerr.UNKNOWN_MEMBER_ID, "there is no member of that instance id"
		case body.MemberEpoch != 0:
			return nil, kerr.FENCED_INSTANCE_ID, "another member has that instance id"
		case known && k.members[owner].epoch != epochLeaveStatic:
			return nil, kerr.UNRELEASED_INSTANCE_ID, "a member that has not left has that instance id"
		case known:
			return c.replaceConsumer(g, k.members[owner], body), kerr.NONE, ""
		case m != nil:
			return nil, kerr.INVALID_REQUEST, "the member exists without that instance id"
		}
	}
	if body.MemberEpoch != 0 {
		if m == nil {
			return nil, kerr.UNKNOWN_MEMBER_ID, "there is no such member"
		}
		if !m.accepts(body) {
			return nil, kerr.FENCED_MEMBER_EPOCH, "the member has another epoch: it must give up all it has and join again"
		}
		return m, kerr.NONE, ""
	}
	if m != nil {
		m.epoch, m.previousEpoch, m.state = 0, 0, memberStable
		k.own(m, owned{}, owned{}) // it says so
		return m, kerr.NONE, ""
	}
	if len(k.members) >= c.opts.MembersMax {
		return nil, kerr.GROUP_MAX_SIZE_REACHED, "the group has as many members as it can have"
	}
	id := body.MemberID
	if id == "" {
		id = c.opts.NewID()
	}
	m = newConsumerMember(g, id)
	m.instance = body.InstanceID
	k.add(m)
	return m, kerr.NONE, ""
}

// accepts tells whether the epoch is the member's, or the one before when the
// answer that told of the new one was lost: then it has nothing that it must not.
func (m *consumerMember) accepts(body *kmsg.ConsumerGroupHeartbeatRequest) bool {
	if body.MemberEpoch == m.epoch {
		return true
	}
	if body.MemberEpoch > m.epoch || body.MemberEpoch != m.previousEpoch || body.Topics == nil {
		return false
	}
	for tp := range ownedOf(body) {
		if _, ok := m.assigned[tp]; !ok {
			return false
		}
	}
	return true
}

func ownedOf(body *kmsg.ConsumerGroupHeartbeatRequest) owned {
	if body.Topics == nil {
		return nil
	}
	has := owned{}
	for i := range body.Topics {
		for _, p := range body.Topics[i].Partitions {
			has[topicPartition{body.Topics[i].TopicID, p}] = 0
		}
	}
	return has
}

// replaceConsumer gives the place and the target of a static member that left for a
// while to its next incarnation.
func (c *Core) replaceConsumer(g *group, old *consumerMember, body *kmsg.ConsumerGroupHeartbeatRequest) *consumerMember {
	k := g.consumer
	id := body.MemberID
	if id == "" {
		id = c.opts.NewID()
	}
	m := newConsumerMember(g, id)
	m.instance, m.rack, m.clientID, m.clientHost = old.instance, old.rack, old.clientID, old.clientHost
	m.topics, m.regex, m.assignor, m.rebalance = old.topics, old.regex, old.assignor, old.rebalance
	target := k.target[old.id]
	c.timers.stop(&old.session)
	c.timers.stop(&old.revoke)
	c.write(g, memberTombstones(g.id, old.id)...)
	k.remove(old, c.now)
	k.add(m)
	k.target[id] = target.clone()
	// A target must not be in the log before its member.
	c.write(g, memberRecord(g.id, m), targetRecord(g.id, id, k.target[id]))
	return m
}

// consumerAlive takes what a member says, moves it towards its target, and answers.
func (c *Core) consumerAlive(g *group, m *consumerMember, r *Request, body *kmsg.ConsumerGroupHeartbeatRequest) {
	k := g.consumer
	changed, resubscribed := m.take(r, body)
	if changed {
		c.write(g, memberRecord(g.id, m))
		k.forgetPatterns()
	}
	if resubscribed || k.target[m.id] == nil && k.epoch == k.assignmentEpoch || k.seen != c.topics && k.hash != k.topicsHash(c.topics) {
		c.bump(g)
	}
	k.seen = c.topics
	if k.assignmentEpoch < k.epoch {
		c.retarget(g)
	}
	before := m.progress()
	moved := k.reconcile(m, ownedOf(body))
	if moved {
		c.write(g, currentRecord(g.id, m))
	}
	c.timers.start(&m.session, c.now.Add(c.opts.ConsumerSessionTimeout))
	switch {
	case m.state != memberUnrevoked:
		c.timers.stop(&m.revoke)
	case moved || m.revoke.place == 0:
		c.timers.start(&m.revoke, c.now.Add(m.rebalance))
	}
	response := body.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	response.MemberID, response.MemberEpoch = &m.id, m.epoch
	response.HeartbeatIntervalMillis = int32(c.opts.ConsumerHeartbeatInterval.Milliseconds())
	if IsFull(body) || moved && !before.sameAssigned(m) {
		response.Assignment = assignmentOf(m.assigned)
	}
	c.respond(g, r, response)
}

// IsFull says whether a member joins with a heartbeat or says everything: then the answer
// has its assignment, also one that it was told before.
func IsFull(body *kmsg.ConsumerGroupHeartbeatRequest) bool {
	return body.MemberEpoch == 0 || body.RebalanceTimeoutMillis != -1 && body.Topics != nil &&
		(body.SubscribedTopicNames != nil || body.SubscribedTopicRegex != nil)
}

// take copies what is said; null says that nothing has changed.
func (m *consumerMember) take(r *Request, body *kmsg.ConsumerGroupHeartbeatRequest) (changed, resubscribed bool) {
	changed = body.MemberEpoch == 0
	if r.ClientID != m.clientID || r.ClientHost != m.clientHost {
		m.clientID, m.clientHost, changed = r.ClientID, r.ClientHost, true
	}
	if body.RackID != nil && !sameString(m.rack, body.RackID) {
		m.rack, changed = body.RackID, true
	}
	if body.RebalanceTimeoutMillis >= 0 {
		if d := time.Duration(body.RebalanceTimeoutMillis) * time.Millisecond; d != m.rebalance {
			m.rebalance, changed = d, true
		}
	}
	if body.ServerAssignor != nil && !sameString(m.assignor, body.ServerAssignor) {
		m.assignor, changed, resubscribed = body.ServerAssignor, true, true
	}
	if body.SubscribedTopicNames != nil {
		names := slices.Clone(body.SubscribedTopicNames)
		slices.Sort(names)
		if names = slices.Compact(names); !slices.Equal(names, m.topics) {
			m.topics, changed, resubscribed = names, true, true
		}
	}
	if regex := body.SubscribedTopicRegex; regex != nil {
		if *regex == "" {
			regex = nil
		}
		if !sameString(m.regex, regex) {
			m.regex, changed, resubscribed = regex, true, true
		}
	}
	return changed, resubscribed
}

func sameString(a, b *string) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// assignmentOf is a set of partitions as members are told it.
func assignmentOf(has owned) *kmsg.ConsumerGroupHeartbeatResponseAssignment {
	a := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
	a.Topics = []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{}
	for _, t := range has.byTopic() {
		one := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
		one.TopicID, one.Partitions = t.id, t.partitions
		a.Topics = append(a.Topics, one)
	}
	return &a
}
