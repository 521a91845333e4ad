package group

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Apply takes a record that the partition holds, with its timestamp, before Loaded.
// An error tells that the record is damaged or not a coordinator's; nothing has
// changed then. Records of kinds that are not known are skipped: later versions may
// write some.
func (c *Core) Apply(at time.Time, record Record) error {
	c.begin(at)
	if len(record.Key) < 2 {
		return fmt.Errorf("group: a record's key has %d bytes: it must begin with its kind", len(record.Key))
	}
	kind := int16(binary.BigEndian.Uint16(record.Key))
	var err error
	switch kind {
	case kindOffset, kindOffsetOld:
		err = c.applyOffset(record)
	case kindGroup:
		err = c.applyGroup(record)
	case kindGroupEpoch, kindMember, kindTargetEpoch, kindTarget, kindCurrent:
		err = c.applyConsumer(kind, record)
	}
	if err != nil {
		return fmt.Errorf("group: record of kind %d with key %x: %w", kind, record.Key, err)
	}
	return nil
}

// existing returns a group, made on demand; the log may hold more than can be made now.
func (c *Core) existing(id string) *group {
	if g := c.groups[id]; g != nil {
		return g
	}
	return c.put(id)
}

func (c *Core) applyOffset(record Record) error {
	var key kmsg.OffsetCommitKey
	if err := key.ReadFrom(record.Key); err != nil {
		return err
	}
	if record.Value == nil {
		if g := c.groups[key.Group]; g != nil {
			g.offsets.remove(key.Topic, key.Partition)
			c.dropIfNothing(g)
		}
		return nil
	}
	var value kmsg.OffsetCommitValue
	if err := value.ReadFrom(record.Value); err != nil {
		return err
	}
	one := commit{offset: value.Offset, leaderEpoch: -1, metadata: value.Metadata, at: time.UnixMilli(value.CommitTimestamp), topic: value.TopicID}
	if value.Version >= 3 {
		one.leaderEpoch = value.LeaderEpoch
	}
	if value.Version == offsetExpiryVersion && value.ExpireTimestamp >= 0 {
		one.expires = time.UnixMilli(value.ExpireTimestamp)
	}
	c.existing(key.Group).offsets.put(key.Topic, key.Partition, one)
	return nil
}

// dropIfNothing forgets a group of which the log holds nothing more.
func (c *Core) dropIfNothing(g *group) {
	if g.consumer == nil && len(g.offsets) == 0 && !g.classic.persisted {
		delete(c.groups, g.id)
	}
}

func (c *Core) applyGroup(record Record) error {
	var key kmsg.GroupMetadataKey
	if err := key.ReadFrom(record.Key); err != nil {
		return err
	}
	if record.Value == nil {
		if g := c.groups[key.Group]; g != nil && g.classic != nil {
			g.classic = newClassicGroup(g, c.now)
			c.dropIfNothing(g)
		}
		return nil
	}
	var v kmsg.GroupMetadataValue
	if err := v.ReadFrom(record.Value); err != nil {
		return err
	}
	g := c.existing(key.Group)
	g.consumer = nil
	k := newClassicGroup(g, c.now)
	g.classic = k
	k.persisted = true
	k.protocolType, k.generation = v.ProtocolType, v.Generation
	if v.Protocol != nil {
		k.protocol = *v.Protocol
	}
	if v.Leader != nil {
		k.leader = *v.Leader
	}
	if v.Version >= 2 && v.CurrentStateTimestamp >= 0 {
		k.stateAt = time.UnixMilli(v.CurrentStateTimestamp)
	}
	for i := range v.Members {
		k.restore(g, &v.Members[i], v.Version)
	}
	if len(k.members) > 0 {
		k.state = stateStable
	}
	return nil
}

// restore adds a member that has its assignment.
func (k *classicGroup) restore(g *group, v *kmsg.GroupMetadataValueMember, version int16) {
	k.joined++
	m := &classicMember{
		id: v.MemberID, instance: v.InstanceID, clientID: v.ClientID, clientHost: v.ClientHost, order: k.joined,
		sessionTimeout: time.Duration(v.SessionTimeoutMillis) * time.Millisecond,
		rebalance:      time.Duration(v.RebalanceTimeoutMillis) * time.Millisecond,
		protocols:      []protocol{{k.protocol, v.Subscription}}, assignment: v.Assignment,
		session: timer{kind: timerSession, group: g, member: v.MemberID},
	}
	if version < 1 {
		m.rebalance = m.sessionTimeout
	}
	k.members[m.id] = m
	if m.instance != nil {
		k.static[*m.instance] = m.id
	}
}

// consumerNames takes a key of the consumer protocol apart.
func consumerNames(kind int16, key []byte) (group, member string, err error) {
	r := &reader{b: key[2:]}
	next := func() string {
		n := r.bytes(2)
		if n == nil {
			return ""
		}
		return string(r.bytes(uint64(binary.BigEndian.Uint16(n))))
	}
	group = next()
	if kind == kindMember || kind == kindTarget || kind == kindCurrent {
		member = next()
	}
	return group, member, r.done()
}

func (c *Core) applyConsumer(kind int16, record Record) error {
	id, member, err := consumerNames(kind, record.Key)
	if err != nil {
		return err
	}
	if record.Value == nil {
		if g := c.groups[id]; g != nil && g.consumer != nil {
			c.applyTombstone(g, kind, member)
		}
		return nil
	}
	change, err := readConsumer(kind, record.Value)
	if err != nil {
		return err
	}
	g := c.existing(id)
	if g.consumer == nil {
		g.classic, g.consumer = nil, newConsumerGroup(c.now)
	}
	change(g, member)
	if kind == kindGroupEpoch && len(g.consumer.members) == 0 {
		g.consumer.emptySince = millis(c.now) // the tombstones before it may have been taken away
	}
	return nil
}

// readConsumer reads a value whole before anything is changed by it.
func readConsumer(kind int16, value []byte) (change func(g *group, member string), err error) {
	r := newReader(value)
	switch kind {
	case kindGroupEpoch:
		epoch := r.int32()
		var hash uint64
		r.tags(func(number uint64, value *reader) {
			if number != 0 {
				return
			}
			if b := value.bytes(8); b != nil {
				hash = binary.BigEndian.Uint64(b)
			}
		})
		change = func(g *group, _ string) { g.consumer.epoch, g.consumer.hash = epoch, hash }
	case kindTargetEpoch:
		epoch := r.int32()
		r.tags(nil)
		change = func(g *group, _ string) { g.consumer.assignmentEpoch = epoch }
	case kindTarget:
		target := r.topics()
		r.tags(nil)
		change = func(g *group, member string) { g.consumer.target[member] = target }
	case kindMember:
		change = readMember(r)
	default:
		change = readCurrent(r)
	}
	return change, r.done()
}

func readMember(r *reader) func(g *group, member string) {
	instance, rack := r.nullable(), r.nullable()
	clientID, clientHost := r.string(), r.string()
	var topics []string
	for n := r.count(); n > 0 && r.err == nil; n-- {
		topics = append(topics, r.string())
	}
	regex := r.nullable()
	rebalance := time.Duration(r.int32()) * time.Millisecond
	assignor := r.nullable()
	r.tags(nil)
	slices.Sort(topics)
	return func(g *group, member string) {
		m := g.consumer.members[member]
		if m == nil {
			m = newConsumerMember(g, member)
		}
		m.instance, m.rack, m.clientID, m.clientHost = instance, rack, clientID, clientHost
		m.topics, m.regex, m.rebalance, m.assignor = topics, regex, rebalance, assignor
		g.consumer.add(m)
	}
}

func readCurrent(r *reader) func(g *group, member string) {
	epoch, previous := r.int32(), r.int32()
	var state memberState
	if b := r.bytes(1); b != nil {
		if state = memberState(b[0]); (state < memberStable || state > memberUnreleased) && r.err == nil {
			r.err = fmt.Errorf("its state is %d, which is not known", state)
		}
	}
	assigned, revoking := r.topics(), r.topics()
	r.tags(nil)
	return func(g *group, member string) {
		m := g.consumer.members[member]
		if m == nil {
			m = newConsumerMember(g, member)
			g.consumer.add(m)
		}
		m.epoch, m.previousEpoch, m.state = epoch, previous, state
		g.consumer.own(m, assigned, revoking)
	}
}

func (c *Core) applyTombstone(g *group, kind int16, member string) {
	k := g.consumer
	switch kind {
	case kindGroupEpoch:
		if len(k.members) == 0 {
			g.consumer = nil
			g.classic = newClassicGroup(g, c.now)
			c.dropIfNothing(g)
		}
	case kindTarget:
		delete(k.target, member)
	case kindCurrent:
		if m := k.members[member]; m != nil {
			// If the log ends here the member is not gone: it has to join again.
			m.epoch, m.previousEpoch, m.state = 0, 0, memberStable
			k.own(m, owned{}, owned{})
		}
	case kindMember:
		if m := k.members[member]; m != nil {
			k.remove(m, c.now)
		}
	}
}
