package group

import (
	"bytes"
	"cmp"
	"slices"
)

// The assignors of consumer groups, under the names by which members ask for them.
const (
	// AssignorUniform gives all members as equal a number of partitions as their
	// subscriptions allow, and moves as few as that takes.
	AssignorUniform = "uniform"
	// AssignorRange gives members neighbouring partitions of each topic, those of
	// the same numbers in all topics that the same members read.
	AssignorRange = "range"
)

func isAssignor(name string) bool { return name == AssignorUniform || name == AssignorRange }

// subscriber is a member as assignors see it.
type subscriber struct {
	id, instance string
	topics       map[TopicID]bool
}

// assignment is what an assignor has to decide about.
type assignment struct {
	members  []subscriber // by id
	topics   map[TopicID]int32
	previous map[string]owned
}

// assign returns the partitions of every member, none of them twice, and all that
// any member reads.
func (a *assignment) assign(assignor string) map[string]owned {
	if assignor == AssignorRange {
		return a.byRange()
	}
	return a.uniform()
}

func (a *assignment) sortedTopics() []TopicID {
	ids := make([]TopicID, 0, len(a.topics))
	for id := range a.topics {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(x, y TopicID) int { return bytes.Compare(x[:], y[:]) })
	return ids
}

// byRange cuts each topic into as many neighbourhoods as it has readers. Static
// members come first, by their instance id, so that they keep their place.
func (a *assignment) byRange() map[string]owned {
	result := make(map[string]owned, len(a.members))
	order := slices.Clone(a.members)
	slices.SortFunc(order, func(x, y subscriber) int {
		if (x.instance == "") != (y.instance == "") {
			return cmp.Compare(y.instance, x.instance)
		}
		return cmp.Or(cmp.Compare(x.instance, y.instance), cmp.Compare(x.id, y.id))
	})
	for _, m := range order {
		result[m.id] = owned{}
	}
	for _, topic := range a.sortedTopics() {
		var readers []string
		for _, m := range order {
			if m.topics[topic] {
				readers = append(readers, m.id)
			}
		}
		n, first := int32(len(readers)), int32(0)
		for i, id := range readers {
			share := a.topics[topic] / n
			if int32(i) < a.topics[topic]%n {
				share++
			}
			for p := first; p < first+share; p++ {
				result[id][topicPartition{topic, p}] = 0
			}
			first += share
		}
	}
	return result
}

// balance is a uniform assignment in the making.
type balance struct {
	members []subscriber
	has     []owned           // by member
	readers map[TopicID][]int // by topic: its members
}

// uniform keeps what members had, gives away what is free to those that have least,
// and then moves partitions from those that have most while that makes them more
// equal.
func (a *assignment) uniform() map[string]owned {
	b := balance{members: a.members, has: make([]owned, len(a.members)), readers: map[TopicID][]int{}}
	taken := make(map[topicPartition]bool)
	for i, m := range a.members {
		b.has[i] = owned{}
		for topic := range m.topics {
			b.readers[topic] = append(b.readers[topic], i)
		}
	}
	quota, extra := a.quota()
	for _, i := range a.byPrevious() {
		limit := quota
		if quota >= 0 && extra > 0 && len(a.previous[a.members[i].id]) > quota {
			limit++
		}
		kept := 0
		for _, t := range a.previous[a.members[i].id].byTopic() {
			for _, p := range t.partitions {
				tp := topicPartition{t.id, p}
				if a.members[i].topics[t.id] && p < a.topics[t.id] && !taken[tp] && (limit < 0 || kept < limit) {
					b.has[i][tp] = 0
					taken[tp] = true
					kept++
				}
			}
		}
		if quota >= 0 && kept > quota {
			extra--
		}
	}
	topics := a.sortedTopics()
	// What few can read is given away first, while they have little.
	slices.SortStableFunc(topics, func(x, y TopicID) int { return cmp.Compare(len(b.readers[x]), len(b.readers[y])) })
	b.fill(a, topics, taken)
	if quota < 0 {
		b.level(topics)
	}
	result := make(map[string]owned, len(a.members))
	for i, m := range a.members {
		result[m.id] = b.has[i]
	}
	return result
}

// quota is how many partitions each member gets, and how many get one more, when
// all read the same; otherwise -1.
func (a *assignment) quota() (each, extra int) {
	total := 0
	for _, n := range a.topics {
		total += int(n)
	}
	for _, m := range a.members {
		if len(m.topics) != len(a.topics) {
			return -1, 0
		}
	}
	if len(a.members) == 0 {
		return -1, 0
	}
	return total / len(a.members), total % len(a.members)
}

// byPrevious orders members by how much they had, most first, so that those keep the
// larger shares.
func (a *assignment) byPrevious() []int {
	order := make([]int, len(a.members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return cmp.Compare(len(a.previous[a.members[y].id]), len(a.previous[a.members[x].id]))
	})
	return order
}

// fill gives every free partition to the reader that has least.
func (b *balance) fill(a *assignment, topics []TopicID, taken map[topicPartition]bool) {
	for _, topic := range topics {
		queue := slices.Clone(b.readers[topic])
		b.heapify(queue)
		for p := range a.topics[topic] {
			tp := topicPartition{topic, p}
			if taken[tp] || len(queue) == 0 {
				continue
			}
			b.has[queue[0]][tp] = 0
			b.sink(queue, 0)
		}
	}
}

func (b *balance) less(x, y int) bool {
	return cmp.Or(cmp.Compare(len(b.has[x]), len(b.has[y])), cmp.Compare(x, y)) < 0
}

func (b *balance) heapify(queue []int) {
	for i := len(queue)/2 - 1; i >= 0; i-- {
		b.sink(queue, i)
	}
}

// sink puts a member that got more where it belongs in a heap by what members have.
func (b *balance) sink(queue []int, i int) {
	for {
		least := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < len(queue) && b.less(queue[child], queue[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		queue[i], queue[least] = queue[least], queue[i]
		i = least
	}
}

// level moves partitions to members that have at least two fewer, until there are
// none. Each move brings the numbers closer together, so it ends.
func (b *balance) level(topics []TopicID) {
	for moved := true; moved; {
		moved = false
		for _, topic := range topics {
			for b.move(topic) {
				moved = true
			}
		}
	}
}

// move takes a partition of the topic from the reader that has most to the one that
// has least.
func (b *balance) move(topic TopicID) bool {
	least, most := -1, -1
	for _, i := range b.readers[topic] {
		if least < 0 || b.less(i, least) {
			least = i
		}
		if (most < 0 || b.less(most, i)) && b.highest(i, topic) >= 0 {
			most = i
		}
	}
	if most < 0 || len(b.has[most]) < len(b.has[least])+2 {
		return false
	}
	tp := topicPartition{topic, b.highest(most, topic)}
	delete(b.has[most], tp)
	b.has[least][tp] = 0
	return true
}

// highest is the last partition of the topic that a member has, or -1.
func (b *balance) highest(i int, topic TopicID) int32 {
	last := int32(-1)
	for tp := range b.has[i] {
		if tp.topic == topic && tp.partition > last {
			last = tp.partition
		}
	}
	return last
}
