package group

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// classicState is what a classic group is doing.
type classicState int8

const (
	stateEmpty      classicState = iota // it has no members; offsets may be left
	statePreparing                      // it waits for members to join
	stateCompleting                     // members know the generation and wait for the leader's assignment
	stateStable                         // all have their assignment
)

// String is the name that clients know.
func (s classicState) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[s]
}

// classicGroup is a group whose members assign partitions among themselves.
type classicGroup struct {
	state   classicState
	stateAt time.Time // since when it is in it
	// protocolType is what the members use the group for, "consumer" mostly; ""
	// before the first member.
	protocolType string
	generation   int32
	protocol     string // "" unless a generation has chosen it
	leader       string // "" or a member
	members      map[string]*classicMember
	static       map[string]string // by instance id: the member
	pending      map[string]*timer // members that were given an id and did not come back yet
	joined       uint64            // counts members, for their order

	join timer // the rebalance's end
	sync timer // when members that did not fetch their assignment go
	// initialLeft is how much longer the first rebalance may be prolonged; added
	// tells that members came in the present delay.
	initial, added bool
	initialLeft    time.Duration

	// persisted tells that the log has a record of the group.
	persisted bool
}

// protocol is one way in which a member can have partitions assigned.
type protocol struct {
	name     string
	metadata []byte
}

// classicMember is one member of a classic group.
type classicMember struct {
	id                   string
	instance             *string
	clientID, clientHost string
	rebalance            time.Duration
	sessionTimeout       time.Duration
	protocols            []protocol
	assignment           []byte
	order                uint64
	isNew                bool // it has never been part of a generation
	unsynced             bool // it owes a SyncGroup of this generation
	join, sync           *Request
	session              timer
}

func newClassicGroup(g *group, now time.Time) *classicGroup {
	return &classicGroup{
		stateAt: now, members: map[string]*classicMember{}, static: map[string]string{}, pending: map[string]*timer{},
		join: timer{kind: timerJoin, group: g}, sync: timer{kind: timerSync, group: g},
	}
}

func (k *classicGroup) enter(state classicState, now time.Time) {
	k.state, k.stateAt = state, now
}

// sorted returns the members in the order in which they came.
func (k *classicGroup) sorted() []*classicMember {
	all := make([]*classicMember, 0, len(k.members))
	for _, m := range k.members {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *classicMember) int { return cmp.Compare(a.order, b.order) })
	return all
}

// rebalanceTimeout is the longest that a member asks for.
func (k *classicGroup) rebalanceTimeout() time.Duration {
	longest := time.Millisecond // whatever they say, time must pass
	for _, m := range k.members {
		longest = max(longest, m.rebalance)
	}
	return longest
}

// awaitingJoin counts the members whose join waits for the rebalance.
func (k *classicGroup) awaitingJoin() int {
	n := 0
	for _, m := range k.members {
		if m.join != nil {
			n++
		}
	}
	return n
}

// supports tells whether a member with these protocols can be in the group.
func (k *classicGroup) supports(protocolType string, offered []kmsg.JoinGroupRequestProtocol) bool {
	if k.state == stateEmpty {
		return protocolType != "" && len(offered) > 0
	}
	if protocolType != k.protocolType {
		return false
	}
	for i := range offered {
		if k.allSupport(offered[i].Name) {
			return true
		}
	}
	return false
}

func (k *classicGroup) allSupport(name string) bool {
	for _, m := range k.members {
		if m.metadata(name) == nil {
			return false
		}
	}
	return true
}

// choose lets each member vote for the first of its protocols that all have. Of
// equals, the one that the eldest prefers wins.
func (k *classicGroup) choose() string {
	votes := map[string]int{}
	best := ""
	members := k.sorted()
	for _, m := range members {
		for i := range m.protocols {
			if name := m.protocols[i].name; k.allSupport(name) {
				votes[name]++
				break
			}
		}
	}
	if len(members) > 0 {
		for i := range members[0].protocols {
			if name := members[0].protocols[i].name; best == "" && votes[name] > 0 || votes[name] > votes[best] {
				best = name
			}
		}
	}
	return best
}

// validate tells whether a member is who it says it is.
func (k *classicGroup) validate(member string, instance *string) int16 {
	if instance != nil {
		owner, ok := k.static[*instance]
		if !ok {
			return kerr.UNKNOWN_MEMBER_ID
		}
		if owner != member {
			return kerr.FENCED_INSTANCE_ID
		}
	}
	if k.members[member] == nil {
		return kerr.UNKNOWN_MEMBER_ID
	}
	return kerr.NONE
}

// metadata is what the member says for a protocol, or nil if it does not have it.
func (m *classicMember) metadata(name string) []byte {
	for i := range m.protocols {
		if m.protocols[i].name == name {
			if m.protocols[i].metadata == nil {
				return []byte{}
			}
			return m.protocols[i].metadata
		}
	}
	return nil
}

// matches tells whether a member that joins again says the same.
func (m *classicMember) matches(offered []kmsg.JoinGroupRequestProtocol) bool {
	return slices.EqualFunc(m.protocols, offered, func(a protocol, b kmsg.JoinGroupRequestProtocol) bool {
		return a.name == b.Name && bytes.Equal(a.metadata, b.Metadata)
	})
}

// take copies what a join says about the member.
func (m *classicMember) take(r *Request, body *kmsg.JoinGroupRequest) {
	m.clientID, m.clientHost = r.ClientID, r.ClientHost
	m.sessionTimeout = time.Duration(body.SessionTimeoutMillis) * time.Millisecond
	m.rebalance = m.sessionTimeout
	if body.Version >= 1 {
		m.rebalance = time.Duration(body.RebalanceTimeoutMillis) * time.Millisecond
	}
	m.protocols = make([]protocol, len(body.Protocols))
	for i := range body.Protocols {
		m.protocols[i] = protocol{body.Protocols[i].Name, body.Protocols[i].Metadata}
	}
}

// touch restarts a member's session.
func (c *Core) touch(m *classicMember) {
	c.timers.start(&m.session, c.now.Add(m.sessionTimeout))
}

// classicRecord is the group as the log has it.
func (k *classicGroup) record(id string) Record {
	v := kmsg.NewGroupMetadataValue()
	v.Version = groupMetadataVersion
	v.ProtocolType, v.Generation = k.protocolType, k.generation
	v.CurrentStateTimestamp = k.stateAt.UnixMilli()
	if k.protocol != "" {
		v.Protocol = &k.protocol
	}
	if k.leader != "" {
		v.Leader = &k.leader
	}
	for _, m := range k.sorted() {
		one := kmsg.NewGroupMetadataValueMember()
		one.MemberID, one.InstanceID, one.ClientID, one.ClientHost = m.id, m.instance, m.clientID, m.clientHost
		one.RebalanceTimeoutMillis = int32(m.rebalance.Milliseconds())
		one.SessionTimeoutMillis = int32(m.sessionTimeout.Milliseconds())
		one.Subscription, one.Assignment = m.metadata(k.protocol), m.assignment
		v.Members = append(v.Members, one)
	}
	return Record{groupMetadataKey(id), v.AppendTo(nil)}
}

func (c *Core) writeClassic(g *group) {
	g.classic.persisted = true
	c.write(g, g.classic.record(g.id))
}

// classicLoaded starts the sessions of members that were read from the log.
func (c *Core) classicLoaded(g *group) {
	for _, m := range g.classic.members {
		c.touch(m)
	}
}
