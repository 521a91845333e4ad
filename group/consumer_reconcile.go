package group

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
)

// progress is how far a member was.
type progress struct {
	epoch, previous    int32
	state              memberState
	assigned, revoking owned
}

func (m *consumerMember) progress() progress {
	return progress{m.epoch, m.previousEpoch, m.state, m.assigned, m.revoking}
}

func (p progress) sameAssigned(m *consumerMember) bool { return samePartitions(p.assigned, m.assigned) }

// same tells whether the member is where it was.
func (p progress) same(m *consumerMember) bool {
	return p.epoch == m.epoch && p.previous == m.previousEpoch && p.state == m.state &&
		samePartitions(p.assigned, m.assigned) && samePartitions(p.revoking, m.revoking)
}

func samePartitions(a, b owned) bool {
	if len(a) != len(b) {
		return false
	}
	for tp := range a {
		if _, ok := b[tp]; !ok {
			return false
		}
	}
	return true
}

// reconcile takes one step from what the member has to its target, and tells whether
// there was one. A member first gives up what it must; only then is it at the
// target's epoch, and gets what is free of the rest. Partitions that stay are in
// what it has all the time. has is what the client says it holds; nil says that it
// holds what it held.
func (k *consumerGroup) reconcile(m *consumerMember, has owned) bool {
	before := m.progress()
	switch m.state {
	case memberStable:
		if m.epoch == k.assignmentEpoch {
			return false
		}
	case memberUnrevoked:
		if holdsAny(has, m.revoking) {
			return false
		}
	}
	target := k.target[m.id]
	keep, revoke := owned{}, owned{}
	for tp, since := range m.assigned {
		if _, ok := target[tp]; ok {
			keep[tp] = since
		} else {
			revoke[tp] = since
		}
	}
	if len(revoke) > 0 && holdsAny(has, revoke) {
		m.state = memberUnrevoked
		k.own(m, keep, revoke)
		return !before.same(m)
	}
	m.state = memberStable
	for tp := range target {
		if _, ok := keep[tp]; ok {
			continue
		}
		_, taken := k.owners[tp]
		_, mine := m.revoking[tp] // it was, until this heartbeat
		if taken && !mine {
			m.state = memberUnreleased
			continue
		}
		keep[tp] = k.assignmentEpoch
	}
	if m.epoch != k.assignmentEpoch {
		m.previousEpoch, m.epoch = m.epoch, k.assignmentEpoch
	}
	k.own(m, keep, owned{})
	return !before.same(m)
}

// holdsAny tells whether a client holds any of the partitions, as far as is known.
func holdsAny(has, any owned) bool {
	if has == nil {
		return true
	}
	for tp := range any {
		if _, ok := has[tp]; ok {
			return true
		}
	}
	return false
}

// retarget computes who shall have what in the group's present epoch.
func (c *Core) retarget(g *group) {
	k := g.consumer
	in := assignment{topics: map[TopicID]int32{}, previous: k.target}
	for _, id := range sortedKeys(k.members) {
		m := k.members[id]
		one := subscriber{id: id, topics: map[TopicID]bool{}}
		if m.instance != nil {
			one.instance = *m.instance
		}
		for id, t := range k.subscription(c.topics, m) {
			one.topics[id] = true
			in.topics[id] = t.Partitions
		}
		in.members = append(in.members, one)
	}
	target := in.assign(k.assignor(c.opts.Assignor))
	for _, has := range target {
		has.fit(c.opts.RecordBytesMax / 4) // with epochs, and what is to be revoked, it is larger
	}
	for _, id := range sortedKeys(k.members) {
		if old, ok := k.target[id]; !ok || !samePartitions(old, target[id]) {
			c.write(g, targetRecord(g.id, id, target[id]))
		}
	}
	k.target = target
	k.assignmentEpoch = k.epoch
	c.write(g, targetEpochRecord(g.id, k.epoch))
}

// fit takes the last partitions away until a record of the rest has at most that size.
func (o owned) fit(size int) {
	topics := o.byTopic()
	for i, t := range topics {
		size -= len(t.id) + 2*countBytesMax
		for _, p := range t.partitions {
			if size -= 4; size < 0 {
				delete(o, topicPartition{topics[i].id, p})
			}
		}
	}
}

// countBytesMax is the most that a count takes in a record.
const countBytesMax = 5

// assignor is the one that most members want, of equals the first by name.
func (k *consumerGroup) assignor(otherwise string) string {
	votes := map[string]int{}
	for _, m := range k.members {
		if m.assignor != nil {
			votes[*m.assignor]++
		}
	}
	best := otherwise
	most := 0
	for _, name := range sortedKeys(votes) {
		if votes[name] > most {
			best, most = name, votes[name]
		}
	}
	return best
}

// ofTopic is partitions of one topic.
type ofTopic struct {
	id         TopicID
	partitions []int32 // sorted
}

// byTopic sorts a set of partitions.
func (o owned) byTopic() []ofTopic {
	all := slices.SortedFunc(maps.Keys(o), func(a, b topicPartition) int {
		return cmp.Or(bytes.Compare(a.topic[:], b.topic[:]), cmp.Compare(a.partition, b.partition))
	})
	var topics []ofTopic
	for _, tp := range all {
		if len(topics) == 0 || topics[len(topics)-1].id != tp.topic {
			topics = append(topics, ofTopic{id: tp.topic})
		}
		last := &topics[len(topics)-1]
		last.partitions = append(last.partitions, tp.partition)
	}
	return topics
}
