package group

import (
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// topicPartition is one partition of a topic that may be renamed or made anew.
type topicPartition struct {
	topic     TopicID
	partition int32
}

// owned are partitions with the epoch since which a member has them.
type owned map[topicPartition]int32

// memberState is how far a member of a consumer group is on the way to its target.
// The numbers are in the log.
type memberState int8

const (
	memberStable     memberState = 0 // it has its target, as of its epoch
	memberUnrevoked  memberState = 1 // it was told to give partitions up and has not confirmed
	memberUnreleased memberState = 2 // partitions that it will have are with others still
)

// Epochs that members send to leave, and for a static member that comes back.
const (
	epochLeave       = -1
	epochLeaveStatic = -2
)

// consumerGroup is a group whose partitions the coordinator assigns.
type consumerGroup struct {
	epoch           int32 // of the membership, subscriptions and topics
	assignmentEpoch int32 // the epoch that the target was computed for
	hash            uint64
	members         map[string]*consumerMember
	static          map[string]string // by instance id: the member
	target          map[string]owned  // by member; the epochs are not used
	owners          owned             // partitions that members have, with the owner's epoch
	emptySince      time.Time

	// Derived, and not in the log.
	seen    *Topics // the topics that hash was last compared with
	regexes map[string]*pattern
}

// consumerMember is one member of a consumer group.
type consumerMember struct {
	id                   string
	instance, rack       *string
	clientID, clientHost string
	topics               []string // sorted
	regex                *string
	rebalance            time.Duration
	assignor             *string

	epoch, previousEpoch int32
	state                memberState
	assigned             owned
	revoking             owned // not assigned any more, but with the member until it says otherwise

	session, revoke timer
}

func newConsumerGroup(now time.Time) *consumerGroup {
	return &consumerGroup{
		members: map[string]*consumerMember{}, static: map[string]string{}, target: map[string]owned{},
		owners: owned{}, emptySince: millis(now), regexes: map[string]*pattern{},
	}
}

func newConsumerMember(g *group, id string) *consumerMember {
	return &consumerMember{
		id: id, assigned: owned{}, revoking: owned{},
		session: timer{kind: timerConsumerSession, group: g, member: id},
		revoke:  timer{kind: timerConsumerRevoking, group: g, member: id},
	}
}

// state is the name of what the group does.
func (k *consumerGroup) state() string {
	switch {
	case len(k.members) == 0:
		return "Empty"
	case k.epoch > k.assignmentEpoch:
		return "Assigning"
	}
	for _, m := range k.members {
		if m.state != memberStable || m.epoch != k.assignmentEpoch && m.epoch != epochLeaveStatic {
			return "Reconciling"
		}
	}
	return "Stable"
}

// own replaces what a member has, so that no partition is ever with two.
func (k *consumerGroup) own(m *consumerMember, assigned, revoking owned) {
	for _, had := range []owned{m.assigned, m.revoking} {
		for tp := range had {
			delete(k.owners, tp)
		}
	}
	m.assigned, m.revoking = assigned, revoking
	for _, has := range []owned{assigned, revoking} {
		for tp := range has {
			k.owners[tp] = m.epoch
		}
	}
}

// add puts a member into the group.
func (k *consumerGroup) add(m *consumerMember) {
	k.members[m.id] = m
	if m.instance != nil {
		k.static[*m.instance] = m.id
	}
}

// remove takes a member and all it has out of the group.
func (k *consumerGroup) remove(m *consumerMember, now time.Time) {
	k.own(m, owned{}, owned{})
	delete(k.members, m.id)
	delete(k.target, m.id)
	if m.instance != nil && k.static[*m.instance] == m.id {
		delete(k.static, *m.instance)
	}
	if len(k.members) == 0 {
		k.emptySince = millis(now)
	}
}

// subscribesTo tells whether a member reads the topic.
func (k *consumerGroup) subscribesTo(topics *Topics, topic string) bool {
	for _, m := range k.members {
		if slices.Contains(m.topics, topic) || m.regex != nil && k.pattern(*m.regex).matches(topic) {
			return true
		}
	}
	return false
}

// subscription is what of the topics that exist a member reads.
func (k *consumerGroup) subscription(topics *Topics, m *consumerMember) map[TopicID]*Topic {
	found := make(map[TopicID]*Topic, len(m.topics))
	for _, name := range m.topics {
		if t := topics.byName[name]; t != nil {
			found[t.ID] = t
		}
	}
	if m.regex != nil {
		for _, t := range k.pattern(*m.regex).in(topics) {
			found[t.ID] = t
		}
	}
	return found
}

// topicsHash stands for all topics that members read: names, identities, partitions.
func (k *consumerGroup) topicsHash(topics *Topics) uint64 {
	all := map[string]*Topic{}
	for _, m := range k.members {
		for _, t := range k.subscription(topics, m) {
			all[t.Name] = t
		}
	}
	if len(all) == 0 {
		return 0
	}
	h := fnv.New64a()
	for _, name := range sortedKeys(all) {
		t := all[name]
		p := t.Partitions
		_, _ = h.Write([]byte(name))
		_, _ = h.Write([]byte{0, byte(p), byte(p >> 8), byte(p >> 16), byte(p >> 24)})
		_, _ = h.Write(t.ID[:])
	}
	return h.Sum64()
}

// validateCommit tells whether a commit may change the group's offsets. One of an
// older epoch may as long as the member has had the partitions since then: a
// heartbeat that overtakes a commit must not lose it.
func (k *consumerGroup) validateCommit(topics *Topics, epoch int32, body *kmsg.OffsetCommitRequest) int16 {
	if epoch < 0 && len(k.members) == 0 {
		return kerr.NONE
	}
	m := k.members[body.MemberID]
	switch {
	case m == nil:
		return kerr.UNKNOWN_MEMBER_ID
	case body.Version < 9:
		return kerr.UNSUPPORTED_VERSION
	case epoch == m.epoch:
		return kerr.NONE
	case epoch > m.epoch || epoch < 0:
		return kerr.STALE_MEMBER_EPOCH
	}
	for i := range body.Topics {
		id := body.Topics[i].TopicID
		if body.Version < 10 {
			if t := topics.byName[body.Topics[i].Topic]; t != nil {
				id = t.ID
			}
		}
		for j := range body.Topics[i].Partitions {
			tp := topicPartition{id, body.Topics[i].Partitions[j].Partition}
			since, ok := m.assigned[tp]
			if !ok {
				since, ok = m.revoking[tp]
			}
			if !ok || epoch < since {
				return kerr.STALE_MEMBER_EPOCH
			}
		}
	}
	return kerr.NONE
}

// validateFetch checks a member that asks for offsets; administrators give none.
func (k *consumerGroup) validateFetch(asked *kmsg.OffsetFetchRequestGroup) int16 {
	if asked.MemberID == nil && asked.MemberEpoch < 0 {
		return kerr.NONE
	}
	var m *consumerMember
	if asked.MemberID != nil {
		m = k.members[*asked.MemberID]
	}
	switch {
	case m == nil:
		return kerr.UNKNOWN_MEMBER_ID
	case m.epoch != asked.MemberEpoch:
		return kerr.STALE_MEMBER_EPOCH
	}
	return kerr.NONE
}

// consumerLoaded starts the timers of members that were read from the log.
func (c *Core) consumerLoaded(g *group) {
	for _, m := range g.consumer.members {
		c.timers.start(&m.session, c.now.Add(c.opts.ConsumerSessionTimeout))
		if m.state == memberUnrevoked {
			c.timers.start(&m.revoke, c.now.Add(m.rebalance))
		}
	}
}

// consumerExpired removes a member that was silent, or kept partitions, for too long.
func (c *Core) consumerExpired(g *group, id string) {
	if m := g.consumer.members[id]; m != nil {
		c.removeConsumers(g, m)
	}
}

// removeConsumers takes members out. The target is computed anew at the next
// heartbeat of another one.
func (c *Core) removeConsumers(g *group, gone ...*consumerMember) {
	k := g.consumer
	for _, m := range gone {
		c.timers.stop(&m.session)
		c.timers.stop(&m.revoke)
		c.write(g, memberTombstones(g.id, m.id)...)
		k.remove(m, c.now)
	}
	k.forgetPatterns()
	c.bump(g)
}

// bump begins a new epoch of the group.
func (c *Core) bump(g *group) {
	k := g.consumer
	k.epoch++
	k.hash = k.topicsHash(c.topics)
	k.seen = c.topics
	c.write(g, groupEpochRecord(g.id, k.epoch, k.hash))
}

// leaveConsumer removes a member that an administrator names.
func (c *Core) leaveConsumer(g *group, who *kmsg.LeaveGroupRequestMember) int16 {
	k := g.consumer
	id := who.MemberID
	if who.InstanceID != nil {
		owner, ok := k.static[*who.InstanceID]
		switch {
		case !ok:
			return kerr.UNKNOWN_MEMBER_ID
		case id == "":
			id = owner
		case id != owner:
			return kerr.FENCED_INSTANCE_ID
		}
	}
	m := k.members[id]
	if m == nil {
		return kerr.UNKNOWN_MEMBER_ID
	}
	c.removeConsumers(g, m)
	return kerr.NONE
}

// tombstones deletes what the log holds of the group itself.
func (k *consumerGroup) tombstones(id string) []Record {
	var records []Record
	for _, member := range sortedKeys(k.members) {
		records = append(records, memberTombstones(id, member)...)
	}
	return append(records, Record{Key: targetEpochKey(id)}, Record{Key: groupEpochKey(id)})
}

// clone is a copy that can be changed.
func (o owned) clone() owned {
	if o == nil {
		return owned{}
	}
	return maps.Clone(o)
}
