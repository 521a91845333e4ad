package replication

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
)

// Every node takes batches and gives them back, whoever leads.
func TestRouteFromEveryNode(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	var want []string
	for i := range 12 {
		v := fmt.Sprint("v", i)
		res := appendTo(t, r.route(i%4), textBatch(t, v))
		if res.Offset != int64(i) {
			t.Fatalf("offset %d, want %d", res.Offset, i)
		}
		want = append(want, v)
	}
	leader := r.leader(-1)
	for i := range 4 {
		route := r.route(i)
		rd := newReader(t, route.Notify, route.NewCursor(), 0)
		if got := rd.take(len(want)); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("node %d reads %v", i+1, got)
		}
		rd.close()
		if err := route.Refresh(testContext(t)); err != nil {
			t.Error(err)
		}
		if route.HighWatermark() != 12 || route.StartOffset() != 0 || route.EndOffset() != 12 {
			t.Errorf("node %d: start %d, high watermark %d, end %d", i+1, route.StartOffset(), route.HighWatermark(), route.EndOffset())
		}
		if at, _, ok, err := route.OffsetForTime(testContext(t), 0); at != 0 || !ok || err != nil {
			t.Errorf("node %d: offset for time 0 is %d, %v, %v", i+1, at, ok, err)
		}
		state, _ := route.State()
		if wantState := StateFollower; i != leader && state != wantState || i == leader && state != StateLeader {
			t.Errorf("node %d is %v", i+1, state)
		}
		if info := route.Info(); info.Leader != int32(leader+1) || info.Epoch == 0 || info.Offline || len(info.Replicas) != 3 {
			t.Errorf("node %d: %+v", i+1, info)
		}
	}
}

// A consumer that waits at the end elsewhere gets a record at once, not with the next poll of a clock.
func TestRouteTail(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	appendTo(t, r.route(outsider), textBatch(t, "first"))
	route := r.route(outsider)
	rd := newReader(t, route.Notify, route.NewCursor(), 0)
	defer rd.close()
	rd.take(1)
	began := time.Now()
	for i := range 50 {
		appendTo(t, r.route(r.leader(-1)), textBatch(t, fmt.Sprint("v", i)))
		rd.take(i + 2)
	}
	if took := time.Since(began); took > waitMax {
		t.Errorf("50 records took %v to be read: a long poll was not answered", took)
	}
}

// A replica that does not lead is read where that is asked for, also when its leader cannot be reached.
func TestRouteReadLocal(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	for i := range 5 {
		appendTo(t, r.route(0), textBatch(t, fmt.Sprint("v", i)))
	}
	f := r.follower()
	waitHW(t, r.parts[f], 5)
	r.net.isolate(int32(f+1), true)
	local := r.routes[f].ReadLocal()
	rd := newReader(t, local.Notify, local.NewCursor(), 0)
	if got := rd.take(5); fmt.Sprint(got) != "[v0 v1 v2 v3 v4]" {
		t.Errorf("read %v", got)
	}
	rd.close()
	if local.HighWatermark() != 5 || !local.Known() {
		t.Errorf("high watermark %d, known %v", local.HighWatermark(), local.Known())
	}
	if at, _, ok, err := local.OffsetForTime(testContext(t), 0); at != 0 || !ok || err != nil {
		t.Errorf("offset for time 0 is %d, %v, %v", at, ok, err)
	}
	r.net.isolate(int32(f+1), false)
	// Without a replica the leader is read.
	away := r.route(outsider).ReadLocal()
	rd = newReader(t, away.Notify, away.NewCursor(), 2)
	if got := rd.take(3); fmt.Sprint(got) != "[v2 v3 v4]" {
		t.Errorf("read %v", got)
	}
	rd.close()
}

// What a reader has got from a replica that is no longer there stays read: a new one that is behind is no reason to refuse its position.
func TestRouteReadLocalOfNewReplica(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	for i := range 5 {
		appendTo(t, r.route(0), textBatch(t, fmt.Sprint("v", i)))
	}
	f := r.follower()
	waitHW(t, r.parts[f], 5)
	spec := testSpec(t, int32(f+1))
	spec.Shard, spec.Join, spec.Learner = 9, true, true
	r.dirs[f].setLocal(r.nodes[f].start(spec, true)) // as empty as one that was just made
	r.routes[f].retarget()
	local := r.routes[f].ReadLocal()
	if local.HighWatermark() != 0 {
		t.Fatalf("the new replica is at %d", local.HighWatermark())
	}
	rd := newReader(t, local.Notify, local.NewCursor(), 3)
	if got := rd.take(2); fmt.Sprint(got) != "[v3 v4]" {
		t.Errorf("read %v", got)
	}
	rd.close()
}

// A leader may be slower to apply what is committed than a replica that was read before.
func TestRouteReadAheadOfLeader(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	for i := range 5 {
		appendTo(t, r.route(0), textBatch(t, fmt.Sprint("v", i)))
	}
	l := r.leader(-1)
	s, err := r.parts[l].standingHere()
	if err != nil {
		t.Fatal(err)
	}
	s.hw = 2
	for offset, want := range map[int64]error{3: ErrBusy, 5: ErrBusy, 6: segment.ErrUnavailable} {
		a, err := decodeFetchAnswer(r.routers[l].read(r.parts[l], fetchRequest{wirePartition: r.routes[l].key, offset: offset, maxBytes: 1000}, s))
		if err != nil || !errors.Is(a.err(1), want) || len(a.data) > 0 {
			t.Errorf("offset %d: %v, %v, want %v", offset, a.err(1), err, want)
		}
	}
}

// Offsets that are not there are refused with the errors of a local cursor.
func TestRouteOutOfRange(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	appendTo(t, r.route(outsider), textBatch(t, "a"))
	c := r.routes[outsider].NewCursor()
	defer c.Close()
	ctx := testContext(t)
	for {
		data, err := c.Read(nil, 77, 1000)
		if len(data) > 0 {
			t.Fatal("read beyond the end")
		}
		if err != nil {
			if codeOf(err) != 31 {
				t.Errorf("error %v", err)
			}
			return
		}
		if err := c.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// A topic that is deleted ends its routes, and what waits for them.
func TestRouteOfDeletedTopic(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	route := r.route(outsider)
	appendTo(t, route, textBatch(t, "a"))
	d := r.dirs[outsider]
	d.mu.Lock()
	d.mu.gone = true
	d.mu.Unlock()
	for {
		if s, cause := route.State(); s == StateClosed {
			if !errors.Is(cause, ErrUnknownTopic) {
				t.Errorf("cause %v", cause)
			}
			break
		}
		if err := route.Writable(testContext(t)); err != nil && !errors.Is(err, ErrUnknownTopic) {
			t.Fatal(err)
		}
	}
	res := make(chan AppendResult, 1)
	route.Append(textBatch(t, "b"), AppendOptions{Acks: AcksAll}, func(r AppendResult) { res <- r })
	if r := <-res; !errors.Is(r.Err, ErrUnknownTopic) {
		t.Errorf("append: %v", r.Err)
	}
	if _, err := r.routers[outsider].Route("t", 0); !errors.Is(err, ErrUnknownTopic) {
		t.Errorf("route: %v", err)
	}
}

// A cluster without a leader says so, and is found again.
func TestRouteOffline(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	appendTo(t, r.route(outsider), textBatch(t, "a"))
	l := r.leader(-1)
	next := (l + 1) % 3
	r.stop(next)
	r.stop((l + 2) % 3)
	for deadline := time.Now().Add(testTimeout); ; {
		err := r.routes[outsider].Writable(within(t, 50*time.Millisecond))
		if errors.Is(err, ErrNotLeader) {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the leader without followers is still taken for one: %v", err)
		}
		pause(testContext(t), time.Millisecond)
	}
	if s, _ := r.routes[outsider].State(); s != StateStarting && s != StateFollower {
		t.Errorf("state %v", s)
	}
	r.nodes[next].open()
	r.startReplica(next, false)
	r.startRouter(next)
	appendTo(t, r.route(outsider), textBatch(t, "b"))
}

// On a node without a network somebody asks for a partition whose replica starts only now: it is told when it is there.
func TestRouteBeforeReplica(t *testing.T) {
	n := &testNode{t: t, fs: vfs.NewMem(), dir: "/data", id: 1}
	n.open()
	defer n.close()
	dir := &fakeDirectory{self: 1}
	dir.mu.at = PartitionAssignment{Shard: 2, Replicas: []ReplicaAssignment{{Node: 1, Replica: replicaID(1, 1)}}}
	r := newRouter(n.host, dir)
	defer r.Close()
	route, err := r.Route("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := r.Route("t", 0); same != route || err != nil {
		t.Errorf("who asks meanwhile gets another one, %v", err)
	}
	told := make(chan struct{}, 1)
	defer route.Notify(told)()
	if route.Known() {
		t.Error("its offsets are known")
	}
	p := n.start(testSpec(t, 1), true)
	dir.setLocal(p)
	eventually(t, "the route has it", route.Current)
	<-told
	appendBatch(t, p, textBatch(t, "a"), AcksAll)
	select {
	case <-told:
	case <-testContext(t).Done():
		t.Error("who waits is not told of a record")
	}
	eventually(t, "it is not shared any more", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.mu.routes) == 0
	})
}
