package replication

import "testing"

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
	l.learn(entry(3, 6, 3, true))
	expect("announced again", 3, 6, true)
	if n := len(l.ledBy(3)); n != 1 {
		t.Errorf("node 3 leads %d", n)
	}
	l.forget(2)
	expect("forgotten", 0, 0, false)
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
