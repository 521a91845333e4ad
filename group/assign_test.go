package group

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// drawAssignment makes members with subscriptions, topics, and what went before.
func drawAssignment(t *rapid.T, alike bool) assignment {
	a := assignment{topics: map[TopicID]int32{}, previous: map[string]owned{}}
	names := []string{"s", "t", "u", "v"}[:rapid.IntRange(1, 4).Draw(t, "topics")]
	sizes := map[string]int32{}
	for _, name := range names {
		sizes[name] = int32(rapid.IntRange(1, 12).Draw(t, "partitions"))
	}
	free := map[topicPartition]bool{}
	for i := range rapid.IntRange(1, 7).Draw(t, "members") {
		m := subscriber{id: fmt.Sprint("m", i), topics: map[TopicID]bool{}}
		if chance(t, 20) {
			m.instance = fmt.Sprint("i", i)
		}
		had := owned{}
		for _, name := range names {
			id := topicID(name)
			if alike || chance(t, 60) {
				m.topics[id] = true
				a.topics[id] = sizes[name]
			}
			for p := range sizes[name] + 2 { // some that exist no more
				if tp := (topicPartition{id, p}); !free[tp] && chance(t, 30) {
					had[tp], free[tp] = 0, true
				}
			}
		}
		a.members = append(a.members, m)
		if chance(t, 80) {
			a.previous[m.id] = had
		}
	}
	return a
}

// checkAssignment wants all partitions that anybody reads to be with one who does.
func checkAssignment(t *rapid.T, a assignment, result map[string]owned) {
	seen := map[topicPartition]string{}
	for _, m := range a.members {
		if result[m.id] == nil {
			t.Fatalf("%s is not in the result", m.id)
		}
		for tp := range result[m.id] {
			if !m.topics[tp.topic] || tp.partition >= a.topics[tp.topic] {
				t.Fatalf("%s gets %v, which it does not read or is not there", m.id, tp)
			}
			if seen[tp] != "" {
				t.Fatalf("%s and %s get %v", seen[tp], m.id, tp)
			}
			seen[tp] = m.id
		}
	}
	total := 0
	for _, n := range a.topics {
		total += int(n)
	}
	if len(seen) != total {
		t.Fatalf("%d of %d partitions are assigned", len(seen), total)
	}
}

func TestAssignorsGiveAllAwayOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := drawAssignment(rt, rapid.Bool().Draw(rt, "alike"))
		checkAssignment(rt, a, a.assign(AssignorRange))
		checkAssignment(rt, a, a.assign(AssignorUniform))
	})
}

// No partition can be moved so that numbers get closer: the dumb way to see it.
func TestUniformIsLevel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := drawAssignment(rt, rapid.Bool().Draw(rt, "alike"))
		result := a.assign(AssignorUniform)
		for _, from := range a.members {
			for tp := range result[from.id] {
				for _, to := range a.members {
					if to.topics[tp.topic] && len(result[to.id])+1 < len(result[from.id]) {
						rt.Fatalf("%s has %d, %s could have %v and has %d", from.id, len(result[from.id]), to.id, tp, len(result[to.id]))
					}
				}
			}
		}
	})
}

// Of members that read the same, each keeps what it had, up to its share.
func TestUniformKeeps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := drawAssignment(rt, true)
		result := a.assign(AssignorUniform)
		least := 1 << 30
		for _, has := range result {
			least = min(least, len(has))
		}
		for _, m := range a.members {
			could, kept := 0, 0
			for tp := range a.previous[m.id] {
				if tp.partition < a.topics[tp.topic] {
					could++
				}
				if _, ok := result[m.id][tp]; ok {
					kept++
				}
			}
			if kept < min(could, least) {
				rt.Fatalf("%s keeps %d of %d that it could, and everybody has %d at least", m.id, kept, could, least)
			}
		}
		a.previous = result
		for id, has := range a.assign(AssignorUniform) {
			if !samePartitions(has, result[id]) {
				rt.Fatalf("%s has %s, and then %s, though nothing has changed", id, ownedText(result[id]), ownedText(has))
			}
		}
	})
}

func TestRangeKeepsNumbersTogether(t *testing.T) {
	a := assignment{topics: map[TopicID]int32{topicID("t"): 5, topicID("u"): 5}, members: []subscriber{
		{id: "a", topics: map[TopicID]bool{topicID("t"): true, topicID("u"): true}},
		{id: "b", instance: "one", topics: map[TopicID]bool{topicID("t"): true, topicID("u"): true}},
	}}
	result := a.assign(AssignorRange)
	if got := ownedText(result["b"]) + "; " + ownedText(result["a"]); got != "t[0 1 2] u[0 1 2]; t[3 4] u[3 4]" {
		t.Fatal(got)
	}
}

// A member joins 50 that share 500 partitions: only what it gets moves, and what does
// not move is with its owner at every moment.
func TestWhatDoesNotMoveNeverPauses(t *testing.T) {
	w := newWorld(t, Options{})
	w.setTopics(Topic{"t", topicID("t"), 500})
	say := func(name, more string) *client {
		w.run(name + " alive g " + more)
		return w.client(name)
	}
	var names []string
	rounds := func(each func()) {
		for range 4 {
			for _, name := range names {
				say(name, "owns=all")
				each()
			}
		}
	}
	for i := range 50 {
		names = append(names, fmt.Sprintf("m%02d", i))
		say(names[i], "topics=t")
	}
	rounds(func() {})
	before := map[topicPartition]string{}
	for _, name := range names {
		if n := len(w.client(name).owned); n != 10 {
			t.Fatalf("%s has %d partitions of 500 for 50", name, n)
		}
		for tp := range w.client(name).owned {
			before[tp] = name
		}
	}
	names = append(names, "new")
	say("new", "topics=t")
	stay := map[topicPartition]string{}
	for id, target := range w.core.groups["g"].consumer.target {
		for tp := range target {
			if before[tp] == id {
				stay[tp] = id
			}
		}
	}
	if moved := 500 - len(stay); moved > 10 {
		t.Fatalf("%d partitions move to a member that gets 10 at most", moved)
	}
	rounds(func() {
		for tp, owner := range stay {
			if _, ok := w.client(owner).owned[tp]; !ok {
				t.Fatalf("%s stays with %s, who does not have it", ownedText(owned{tp: 0}), owner)
			}
		}
	})
	if state := w.core.groups["g"].consumer.state(); state != "Stable" || len(w.client("new").owned) < 9 {
		t.Fatalf("the group is %s, and the new member has %s", state, ownedText(w.client("new").owned))
	}
}

func BenchmarkUniform(b *testing.B) {
	for _, size := range []struct{ members, partitions int }{{50, 500}, {1000, 10000}} {
		b.Run(fmt.Sprintf("members=%d/partitions=%d", size.members, size.partitions), func(b *testing.B) {
			a := assignment{topics: map[TopicID]int32{topicID("t"): int32(size.partitions)}}
			for i := range size.members {
				a.members = append(a.members, subscriber{id: fmt.Sprint(i), topics: map[TopicID]bool{topicID("t"): true}})
			}
			a.previous = a.assign(AssignorUniform)
			a.members = append(a.members, subscriber{id: "new", topics: map[TopicID]bool{topicID("t"): true}})
			for b.Loop() {
				a.assign(AssignorUniform)
			}
		})
	}
}
