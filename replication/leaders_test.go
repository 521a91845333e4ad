package replication

import (
	"errors"
	"testing"
	"time"
)

func TestLeadersLearn(t *testing.T) {
	l := newLeaders()
	told := l.watch()
	entry := func(node, epoch int32, serial uint64, leading bool) leadership {
		return leadership{shard: 2, epoch: epoch, replica: replicaID(node, 1), serial: serial, leading: leading}
	}
	expect := func(what string, node, epoch int32, ok bool) {
		t.Helper()
		e, leads := l.lookup(2)
		if leads != ok || (ok && (e.node() != node || e.epoch != epoch)) {
			t.Errorf("%s: node %d leads in epoch %d (%v), want node %d in %d (%v)", what, e.node(), e.epoch, leads, node, epoch, ok)
		}
	}
	expect("at first", 0, 0, false)
	l.learn(entry(1, 5, 3, true))
	expect("announced", 1, 5, true)
	select {
	case <-told:
	default:
		t.Error("who watches is not told")
	}
	l.learn(entry(2, 4, 9, true))
	expect("an older epoch", 1, 5, true)
	l.learn(entry(1, 5, 2, false))
	expect("overtaken by what was said later", 1, 5, true)
	l.learn(entry(2, 5, 9, true))
	expect("another node in the same epoch", 1, 5, true)
	l.learn(entry(1, 5, 4, false))
	expect("given up", 1, 5, false)
	if l.hint(wirePartition{}, 2, wireLeader{2, 4, replicaID(2, 1)}); true {
		expect("a hint of an older epoch", 0, 0, false)
	}
	l.hint(wirePartition{}, 2, wireLeader{1, 5, replicaID(1, 1)})
	expect("a hint that it leads again", 1, 5, true)
	l.hint(wirePartition{}, 2, wireLeader{3, 6, replicaID(3, 1)})
	expect("a hint of a newer epoch", 3, 6, true)
	l.learn(entry(3, 6, 1, true))
	l.deny(2, 3, 5)
	expect("denied in an older epoch", 3, 6, true)
	version := l.version.Load()
	l.learn(entry(3, 6, 2, true))
	if l.version.Load() != version {
		t.Error("no news makes a new version")
	}
	l.deny(2, 3, 6)
	expect("denied", 0, 0, false)
	l.learn(entry(3, 6, 1, true))
	expect("overtaken by what was said before it was denied", 0, 0, false)
	l.learn(entry(3, 6, 2, true))
	expect("announced again with nothing new", 3, 6, true)
	l.learn(entry(3, 6, 3, false))
	l.learn(entry(3, 6, 3, true))
	expect("given up, and what is said in the same breath", 0, 0, false)
	l.learn(entry(3, 6, 4, true))
	expect("announced again", 3, 6, true)
	if n := len(l.ledBy(3)); n != 1 {
		t.Errorf("node 3 leads %d", n)
	}
	l.forget(2)
	expect("forgotten", 0, 0, false)
}

// A leader that refused something before it was ready is found again, though nobody waits for news of it and it has nothing new to say.
func TestLeadersDenied(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	l := r.leader(-1)
	appendTo(t, r.route(outsider), textBatch(t, "a"))
	route := r.routes[outsider]
	at, ok := r.routers[outsider].table.lookup(2)
	if !ok {
		t.Fatal("nobody is known to lead")
	}
	deny := func() {
		t.Helper()
		r.routers[outsider].table.deny(2, at.node(), at.epoch)
		route.retarget()
		if _, ok := r.routers[outsider].table.lookup(2); ok {
			t.Fatal("it still leads")
		}
	}
	deny()
	ctx := within(t, announceEvery/2)
	for done := make(chan AppendResult, 1); ; pause(ctx, time.Millisecond) {
		route.Append(textBatch(t, "b"), AppendOptions{Acks: AcksAll}, func(res AppendResult) { done <- res })
		res := <-done
		if res.Err == nil {
			break
		}
		if !errors.Is(res.Err, ErrNotLeader) || ctx.Err() != nil {
			t.Fatal(res.Err)
		}
	}
	deny()
	told := r.routers[outsider].table.watch()
	r.routers[l].announceAll()
	select {
	case <-told:
	case <-ctx.Done():
	}
	if e, ok := r.routers[outsider].table.lookup(2); !ok || e.node() != int32(l+1) {
		t.Errorf("after it announced itself again: %+v, %v", e, ok)
	}
	// What a node leads itself it does not forget because the topic's record has not come yet.
	r.dirs[l].mu.Lock()
	r.dirs[l].mu.gone = true
	r.dirs[l].mu.Unlock()
	r.routers[l].forgetGone()
	if n := len(r.routers[l].table.ledBy(int32(l + 1))); n != 1 {
		t.Errorf("the leader says that it leads %d partitions", n)
	}
}

// What a node says counts for replicas of its own only.
func TestLeadersOfOthers(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	l := r.leader(-1)
	appendTo(t, r.route(outsider), textBatch(t, "a"))
	liar := (l + 1) % 3
	a := announcement{entries: []announced{
		{wirePartition{[16]byte{7}, 0}, 2, 1000, replicaID(int32(l+1), 1), 1, false, nil}, // not its replica
		{wirePartition{[16]byte{7}, 0}, 2, 0, replicaID(int32(liar+1), 1), 1, true, nil},  // no epoch
	}}
	if _, err := r.nodes[liar].host.call(testContext(t), outsider+1, requestLeaders, a.encode()); err != nil {
		t.Fatal(err)
	}
	if e, ok := r.routers[outsider].table.lookup(2); !ok || e.node() != int32(l+1) || e.epoch >= 1000 {
		t.Errorf("%+v, %v", e, ok)
	}
}
