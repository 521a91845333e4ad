package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// statuses lists what was heard about a peer.
func (r *recorder) statuses(id int32) []PeerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []PeerStatus
	for _, s := range r.states {
		if s.ID == id {
			list = append(list, s.Status)
		}
	}
	return list
}

// A process that ended is told from one that is silent.
func TestGoneIsNotSilent(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(m *MemoryNetwork)
		want  PeerStatus
		gone  bool
	}{
		"crash":          {func(m *MemoryNetwork) { m.Crash("b") }, PeerRefusing, true},
		"silent cut":     {func(m *MemoryNetwork) { m.Partition(CutSilent, []string{"a"}, []string{"b"}) }, PeerUnreachable, false},
		"one-way out":    {func(m *MemoryNetwork) { m.Cut("a", "b", CutSilent) }, PeerUnreachable, false},
		"one-way in":     {func(m *MemoryNetwork) { m.Cut("b", "a", CutSilent) }, PeerUnreachable, false},
		"crash unseen":   {func(m *MemoryNetwork) { m.Cut("b", "a", CutSilent); m.Crash("b") }, PeerUnreachable, false},
		"reset and hang": {func(m *MemoryNetwork) { m.Reset("a", "b"); m.Cut("b", "a", CutSilent) }, PeerUnreachable, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { goneIsNotSilent(t, c.fault, c.want, c.gone, name == "crash unseen") })
		})
	}
}

func goneIsNotSilent(t *testing.T, fault func(*MemoryNetwork), want PeerStatus, gone, ended bool) {
	m := newTestNetwork(t, 1)
	rec := newRecorder()
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	a.OnPeerState = rec.onState
	b.ListenAddress = "b"
	one, _ := pair(t, a, b)
	first := rec.waitState(t, 2, PeerReachable)
	began := time.Now()
	fault(m)
	state := rec.waitState(t, 2, want)
	if state.Gone() != gone || state.Incarnation != first.Incarnation || state.Err == nil {
		t.Errorf("%+v", state)
	}
	if gone && time.Since(began) > a.BackoffMin {
		t.Errorf("known after %v", time.Since(began))
	}
	if list := rec.statuses(2); !slices.Equal(list, []PeerStatus{PeerReachable, PeerLost, want}) {
		t.Errorf("heard %v", list)
	}
	if _, err := one.Call(testContext(t), 2, nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("call: %v", err)
	}
	m.Heal()
	if !gone && !ended {
		rec.waitState(t, 2, PeerReachable)
	}
}

// The same over TCP: the kernel's word counts.
func TestGoneOverTCP(t *testing.T) {
	rec := newRecorder()
	a, b := testOptions(1, TCP{}), testOptions(2, TCP{})
	a.OnPeerState = rec.onState
	b.ListenAddress = "127.0.0.1:0"
	_, two := pair(t, a, b)
	rec.waitState(t, 2, PeerReachable)
	began := time.Now()
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	state := rec.waitState(t, 2, PeerRefusing)
	if !state.Gone() || !errors.Is(state.Err, syscall.ECONNREFUSED) {
		t.Errorf("%+v", state)
	}
	t.Logf("known after %v", time.Since(began))
}

// dyingTransport resets a number of dials.
type dyingTransport struct {
	Memory
	left atomic.Int32
}

func (d *dyingTransport) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if d.left.Add(-1) >= 0 {
		return nil, opError("read", addr, syscall.ECONNRESET)
	}
	return d.Memory.Dial(ctx, addr)
}

// A listener that outlives the connections of its process for some dials hides its end for less than BackoffMin; one that lives on is not
// dialled all the time.
func TestDyingPeerIsGoneSoon(t *testing.T) {
	for resets, want := range map[int32]time.Duration{0: 0, 1: 3 * time.Millisecond, dyingDials - 1: 18 * time.Millisecond, dyingDials + 4: 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			m := newTestNetwork(t, 1)
			rec := newRecorder()
			dials := &dyingTransport{Memory: m.Host("a")}
			two := startNode(t, Options{ID: 2, ClusterID: testCluster, Transport: m.Host("b"), ListenAddress: "b"})
			one := startNode(t, Options{ID: 1, ClusterID: testCluster, Transport: dials, OnPeerState: rec.onState})
			one.SetAddress(2, two.Addr().String())
			rec.waitState(t, 2, PeerReachable)
			timer := time.NewTimer(time.Second)
			<-timer.C // it stood for long enough to be dialled again at once
			dials.left.Store(resets)
			began := time.Now()
			m.Crash("b")
			state := rec.waitState(t, 2, PeerRefusing)
			took := time.Since(began)
			if !state.Gone() || resets < dyingDials && took > want || resets > dyingDials && took < want {
				t.Errorf("after %d resets: %+v, known after %v", resets, state, took)
			}
		})
	}
}

// A peer that was never there refuses, but is not gone.
func TestRefusedAtFirstIsNotGone(t *testing.T) {
	m := newTestNetwork(t, 1)
	rec := newRecorder()
	opts := testOptions(1, m.Host("a"))
	opts.OnPeerState = rec.onState
	n := startNode(t, opts)
	n.SetAddress(2, "b")
	if state := rec.waitState(t, 2, PeerRefusing); state.Gone() {
		t.Errorf("%+v", state)
	}
}

func TestAddressChanges(t *testing.T) {
	m := newTestNetwork(t, 1)
	rec := newRecorder()
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	a.OnPeerState = rec.onState
	a.BackoffMin, a.BackoffMax = time.Minute, time.Minute // only SetAddress makes it try again
	b.ListenAddress, b.OnBatch = "old", rec.onBatch
	one, two := pair(t, a, b)
	rec.waitState(t, 2, PeerReachable)
	batches, err := one.OpenBatches(context.Background(), 2, FullFails)
	if err != nil {
		t.Fatal(err)
	}
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	rec.waitState(t, 2, PeerRefusing)
	b.ListenAddress, b.Incarnation = "new", 0
	startNode(t, b)
	one.SetAddress(2, "new")
	one.SetAddress(1, "nonsense") // its own
	rec.waitState(t, 2, PeerReachable)
	if _, err := one.Call(testContext(t), 2, []byte("x")); err != nil {
		t.Error(err)
	}
	<-batches.Done()
	if batches, err = one.OpenBatches(context.Background(), 2, FullFails); err != nil {
		t.Fatal(err)
	}
	// While it is there, a move closes what leads to the old place.
	third := testOptions(2, m.Host("c"))
	third.ListenAddress = "newest"
	startNode(t, third)
	one.SetAddress(2, "newest")
	<-batches.Done()
	if !errors.Is(batches.Err(), ErrConnLost) || !strings.Contains(batches.Err().Error(), "moved") {
		t.Error(batches.Err())
	}
}

// A dial that hangs does not keep a node from its new address.
func TestAddressChangesWhileDialling(t *testing.T) {
	m := newTestNetwork(t, 1)
	rec := newRecorder()
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	a.OnPeerState, a.DialTimeout = rec.onState, time.Hour
	b.ListenAddress = "new"
	startNode(t, b)
	old, err := m.Host("old").Listen("old")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	m.Cut("a", "old", CutSilent)
	one := startNode(t, a)
	one.SetAddress(2, "old")
	for one.Stats().Dials == 0 {
		time.Sleep(time.Millisecond)
	}
	one.SetAddress(2, "new")
	rec.waitState(t, 2, PeerReachable)
	if list := rec.statuses(2); len(list) != 1 {
		t.Errorf("heard %v", list)
	}
}

// A connection that passed the handshake just before a newer incarnation came does not get in behind it.
func TestStaleStreamDoesNotEnter(t *testing.T) {
	m := newTestNetwork(t, 1)
	n := startNode(t, testOptions(2, m.Host("b")))
	if err := n.meet(1, 6); err != nil {
		t.Fatal(err)
	}
	near, _ := memoryPair(t, m, "a", "b")
	s := n.newStream(n.ctx, near, Peer{ID: 1, Incarnation: 5}, KindBatches, "", 1, 2)
	n.enter(s)
	if !errors.Is(s.cause(), ErrDuplicateNode) || len(n.mu.known[1].inbound) != 0 {
		t.Errorf("%v", s.cause())
	}
	if err := n.meet(1, 5); err == nil || err.Code != RefusedDuplicate {
		t.Errorf("%v", err)
	}
}

// When callbacks are slow, the last state is not among what they miss.
func TestNotifierKeepsTheLast(t *testing.T) {
	var states []PeerState
	events := 0
	n := newNotifier(func(s PeerState) { states = append(states, s) }, func(Event) { events++ })
	for range notifierMax {
		n.push(Event{Kind: EventBadFrame})
	}
	for i := range int32(notifierMax + 10) {
		n.push(PeerState{ID: i})
	}
	for what, ok := n.pop(); ok; what, ok = n.pop() {
		n.call(what)
	}
	if events != 0 || len(states) != notifierMax || states[notifierMax-1].ID != notifierMax+9 || n.droppedCount() != notifierMax+10 {
		t.Errorf("%d events, %d states, %d dropped", events, len(states), n.droppedCount())
	}
}

func TestForget(t *testing.T) {
	m := newTestNetwork(t, 1)
	rec := newRecorder()
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	a.OnPeerState = rec.onState
	one, two := pair(t, a, b)
	rec.waitState(t, 2, PeerReachable)
	one.Forget(2)
	for two.Stats().Conns > 0 || one.Stats().Conns > 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := one.Call(testContext(t), 2, nil); !errors.Is(err, ErrUnknownPeer) {
		t.Error(err)
	}
	if s := one.PeerState(2); s.Status != PeerUnknown {
		t.Errorf("%+v", s)
	}
	one.SetAddress(2, two.Addr().String())
	if _, err := one.Call(testContext(t), 2, nil); err != nil {
		t.Error(err)
	}
}

func TestResolve(t *testing.T) {
	m := newTestNetwork(t, 1)
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	b.ListenAddress = "b"
	a.Resolve = func(id int32) (string, bool) { return "b", id == 2 }
	startNode(t, b)
	one := startNode(t, a)
	if _, err := one.Call(testContext(t), 2, nil); err != nil {
		t.Error(err)
	}
	if _, err := one.Call(testContext(t), 3, nil); !errors.Is(err, ErrUnknownPeer) {
		t.Error(err)
	}
}

// An inbound connection of a peer ends the wait for the next dial to it.
func TestPeerThatComesIsDialledAtOnce(t *testing.T) {
	m := newTestNetwork(t, 1)
	rec := newRecorder()
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	a.OnPeerState = rec.onState
	a.ListenAddress, b.ListenAddress = "a", "b"
	a.BackoffMin, a.BackoffMax = time.Minute, time.Minute
	one := startNode(t, a)
	one.SetAddress(2, "b")
	rec.waitState(t, 2, PeerRefusing)
	two := startNode(t, b)
	two.SetAddress(1, "a")
	rec.waitState(t, 2, PeerReachable)
}

// Dials to a peer that is not there become rare, up to the cap.
func TestBackoff(t *testing.T) { synctest.Test(t, backoff) }

func backoff(t *testing.T) {
	m := newTestNetwork(t, 1)
	opts := testOptions(1, m.Host("a"))
	opts.BackoffMin, opts.BackoffMax = 10*time.Millisecond, 40*time.Millisecond
	n := startNode(t, opts)
	n.SetAddress(2, "b")
	timer := time.NewTimer(500 * time.Millisecond)
	defer timer.Stop()
	<-timer.C
	// 10, 20, 40 and so on, each shortened by up to a half.
	if dials := n.Stats().DialsFailed; dials < 13 || dials > 28 {
		t.Errorf("%d dials in half a second", dials)
	}
}

// A second connection for batches takes the place of the first, and order holds over both.
func TestBatchesAreReplaced(t *testing.T) {
	m := newTestNetwork(t, 1)
	rec := newRecorder()
	entered, release := make(chan struct{}, 10), make(chan struct{})
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	b.OnBatch = func(p Peer, payload []byte) {
		entered <- struct{}{}
		<-release
		rec.onBatch(p, payload)
	}
	one, _ := pair(t, a, b)
	first, err := one.OpenBatches(context.Background(), 2, FullFails)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Send([]byte("first")); err != nil {
		t.Fatal(err)
	}
	<-entered
	second, err := one.OpenBatches(context.Background(), 2, FullFails)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Send([]byte("second")); err != nil {
		t.Fatal(err)
	}
	<-first.Done()
	select {
	case <-entered:
		t.Error("two deliver at a time")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	rec.wait(t, "both", func() bool { return slices.Equal(rec.batches, []string{"first", "second"}) })
	if second.Peer().ID != 2 || second.Close() != nil || !errors.Is(second.Err(), ErrClosed) {
		t.Error(second.Err())
	}
}

func TestStatusOfErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want PeerStatus
	}{
		{fmt.Errorf("dial: %w", &net.OpError{Err: syscall.ECONNREFUSED}), PeerRefusing},
		{context.DeadlineExceeded, PeerUnreachable},
		{syscall.ECONNRESET, PeerUnreachable},
		{&RefusedError{Code: RefusedUnknown}, PeerRejected},
		{&RefusedError{Code: RefusedBusy}, PeerUnreachable},
		{fmt.Errorf("x: %w", ErrAuthentication), PeerRejected},
	} {
		if got := statusOf(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	if PeerStatus(99).String() != "status 99" || PeerRejected.String() != "rejected" || Kind(9).String() != "kind 9" {
		t.Error("names")
	}
}
