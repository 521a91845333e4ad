package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/billetlog/billet/group"
)

// largeGroup is a group whose members go where the coordinator says, at once.
type largeGroup struct {
	*coordinatorRig
	members []*group.Member
	held    []map[group.TopicPartition]bool // by member
}

func (g *largeGroup) join(n int) {
	g.members = append(g.members, group.NewMember(group.MemberOptions{Group: "g", ID: fmt.Sprint("member-", n), Topics: []string{"large"}, RebalanceTimeout: time.Minute}))
	g.held = append(g.held, map[group.TopicPartition]bool{})
}

// beat has each member say something once, and looks what it is told. It returns whether
// anything changed.
func (g *largeGroup) beat() (changed bool) {
	g.t.Helper()
	for i, m := range g.members {
		if lost, _, err := m.Heard(g.insist(m.Heartbeat())); err != nil || lost {
			g.t.Fatalf("member %d: lost %v, %v", i, lost, err)
		}
		before, now := g.held[i], map[group.TopicPartition]bool{}
		var list []group.TopicPartition
		for tp := range m.Target() {
			now[tp] = true
			list = append(list, tp)
			changed = changed || !before[tp]
		}
		changed = changed || len(before) != len(now)
		if len(before) != len(now) || changed {
			m.Hold(list)
		}
		g.held[i] = now
	}
	return changed
}

// Into a group of 50 members with 500 partitions comes another one: whoever has a
// partition before and after has it all the time, and nobody has one that another has.
func TestGroupsLargeJoin(t *testing.T) {
	topics := &testTopics{changed: make(chan struct{})}
	topics.set(testTopic("large", 1, 500))
	g := &largeGroup{coordinatorRig: newCoordinatorRig(t, newTestLog(), topics)}
	settle := func(each func()) (rounds int) {
		for quiet := 0; quiet < 3; rounds++ {
			if quiet++; g.beat() {
				quiet = 0
			}
			each()
			if rounds > 1_000 {
				t.Fatal("the group does not settle")
			}
		}
		return rounds
	}
	for n := range 50 {
		g.join(n)
	}
	settle(func() {})
	owner := func() map[group.TopicPartition]int {
		all := map[group.TopicPartition]int{}
		for i, held := range g.held {
			for tp := range held {
				if other, taken := all[tp]; taken {
					t.Fatalf("partition %d is with members %d and %d", tp.Partition, other, i)
				}
				all[tp] = i
			}
		}
		return all
	}
	before := owner()
	if len(before) != 500 {
		t.Fatalf("%d partitions are with somebody", len(before))
	}
	var history []map[group.TopicPartition]int
	g.join(50)
	began := time.Now()
	rounds := settle(func() { history = append(history, owner()) })
	took := time.Since(began)
	after := owner()
	stayed := 0
	for tp, member := range before {
		if after[tp] != member {
			continue
		}
		stayed++
		for round, then := range history {
			if with, ok := then[tp]; !ok || with != member {
				t.Fatalf("partition %d of member %d was away in round %d", tp.Partition, member, round)
			}
		}
	}
	if stayed < 490 || len(after) != 500 {
		t.Errorf("%d partitions stayed where they were, %d are with somebody", stayed, len(after))
	}
	t.Logf("%d of 500 partitions stayed; settled after %d heartbeats of each member, %v", stayed, rounds, took)
}
