package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A peer that does not read fills its own queue and nothing else.
func TestSlowPeerBlocksNobody(t *testing.T) { synctest.Test(t, slowPeerBlocksNobody) }

func slowPeerBlocksNobody(t *testing.T) {
	m := newTestNetwork(t, 1)
	release := make(chan struct{})
	slow, quick := testOptions(2, m.Host("slow")), testOptions(3, m.Host("quick"))
	slow.ListenAddress, quick.ListenAddress = "slow", "quick"
	slow.OnBatch = func(Peer, []byte) { <-release }
	rec := newRecorder()
	quick.OnBatch = rec.onBatch
	startNode(t, slow)
	startNode(t, quick)
	t.Cleanup(func() { close(release) }) // before the nodes are closed
	opts := testOptions(1, m.Host("a"))
	opts.SendQueueBytes = 100 << 10
	one := startNode(t, opts)
	one.SetAddress(2, "slow")
	one.SetAddress(3, "quick")
	toSlow, err := one.OpenBatches(testContext(t), 2, FullFails)
	if err != nil {
		t.Fatal(err)
	}
	toQuick, err := one.OpenBatches(testContext(t), 3, FullFails)
	if err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, 30<<10)
	full := 0
	for i := range 300 {
		err := toSlow.Send(payload)
		switch {
		case errors.Is(err, ErrQueueFull):
			full++
		case err != nil:
			t.Fatal(err)
		}
		if i%100 == 0 {
			if err := toQuick.Send([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	rec.wait(t, "delivery to the quick", func() bool { return len(rec.batches) == 3 })
	if full == 0 || one.Stats().BatchesDropped != uint64(full) {
		t.Errorf("%d sends failed, stats %+v", full, one.Stats())
	}
	toSlow.s.out.mu.Lock()
	n := toSlow.s.out.mu.size
	toSlow.s.out.mu.Unlock()
	if n > opts.SendQueueBytes {
		t.Errorf("%d bytes are queued", n)
	}
	// It is slow, not dead: longer than the time for that.
	timer := time.NewTimer(2 * opts.DeadPeerTimeout)
	defer timer.Stop()
	<-timer.C
	if toSlow.Err() != nil || one.PeerState(2).Status != PeerReachable {
		t.Errorf("slow became %v: %v", one.PeerState(2), toSlow.Err())
	}
}

func TestFullPolicies(t *testing.T) {
	o := newOutbox(1000, 1)
	big := make([]byte, 5000)
	if err := o.add(header{kind: frameBatch}, big); err != nil {
		t.Errorf("a large frame into an empty queue: %v", err)
	}
	if err := o.add(header{kind: frameBatch}, nil); !errors.Is(err, ErrQueueFull) {
		t.Errorf("behind it: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := o.addWait(ctx, header{kind: frameBatch}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting in vain: %v", err)
	}
	waited := make(chan error, 2)
	for range 2 {
		go func() { waited <- o.addWait(context.Background(), header{kind: frameBatch}, make([]byte, 600)) }()
	}
	if got := o.take(); len(got) != 5000+headerSize {
		t.Errorf("took %d", len(got))
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
	o.close(ErrClosed)
	if err := <-waited; !errors.Is(err, ErrClosed) && err != nil {
		t.Error(err)
	}
	if err := o.add(header{}, nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}

	m := newTestNetwork(t, 1)
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	release := make(chan struct{})
	b.OnBatch = func(Peer, []byte) { <-release }
	a.SendQueueBytes, a.BatchBytesMax = 1000, 1<<20
	one, _ := pair(t, a, b)
	t.Cleanup(func() { close(release) })
	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	drops, err := one.OpenBatches(ctx, 2, FullDrops)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := drops.Send(make([]byte, 1<<20)); err != nil {
			t.Error(err)
		}
	}
	if one.Stats().BatchesDropped == 0 {
		t.Error("nothing was dropped")
	}
	if err := drops.Send(make([]byte, 1<<20+1)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	waits := &Batches{s: drops.s, full: FullWaits}
	failed := make(chan error, 1)
	go func() {
		for {
			if err := waits.Send(make([]byte, 1<<20)); err != nil {
				failed <- err
				return
			}
		}
	}()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("a waiting send after cancel: %v", err)
	}
	<-drops.Done()
	if !errors.Is(drops.Err(), context.Canceled) {
		t.Error(drops.Err())
	}
}

// Urgent batches pass those that fill their connection, and who sends those is not held for long.
func TestUrgentBatches(t *testing.T) {
	m := newTestNetwork(t, 1)
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	a.SendQueueBytes = 10000
	release, urgent := make(chan struct{}), make(chan struct{}, 1)
	b.OnBatch = func(_ Peer, payload []byte) {
		if len(payload) > 1 {
			<-release
		} else {
			urgent <- struct{}{}
		}
	}
	one, _ := pair(t, a, b)
	t.Cleanup(func() { close(release) })
	bulk, err := one.OpenBatches(testContext(t), 2, FullWaits)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = bulk.SendWithin(make([]byte, 5000), 10*time.Millisecond)
	}
	if !errors.Is(err, ErrQueueFull) || one.Stats().BatchesDropped != 1 {
		t.Errorf("%v, %d dropped", err, one.Stats().BatchesDropped)
	}
	quick, err := one.OpenUrgent(testContext(t), 2, FullFails)
	if err != nil {
		t.Fatal(err)
	}
	if err := quick.Send([]byte("u")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-urgent:
	case <-testContext(t).Done():
		t.Error("it waits behind the others")
	}
	if err := bulk.Err(); err != nil {
		t.Errorf("the other connection has ended: %v", err)
	}
	_ = bulk.Close()
	if err := bulk.SendWithin(make([]byte, 5000), time.Hour); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestRequestBounds(t *testing.T) {
	m := newTestNetwork(t, 1)
	release := make(chan struct{})
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	b.RequestsMax, b.ResponseBytesMax, b.ConnBytesMax = 2, 1000, 1<<20
	b.BatchBytesMax, b.RequestBytesMax, b.PullRequestBytesMax = 1000, 1<<20, 1000
	b.OnRequest = func(ctx context.Context, _ Peer, payload []byte) ([]byte, error) {
		switch string(payload) {
		case "wait":
			<-release
		case "large":
			return make([]byte, 1001), nil
		case "fail":
			return nil, errors.New("it failed\x00")
		case "busy":
			return nil, fmt.Errorf("log: %w", ErrBusy)
		case "time":
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return nil, nil
	}
	one, two := pair(t, a, b)
	ctx := testContext(t)
	call := func(s string) error {
		_, err := one.Call(ctx, 2, []byte(s))
		return err
	}
	var remote *RemoteError
	if err := call("large"); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if err := call("fail"); !errors.As(err, &remote) || remote.Text != "it failed " || remote.Node != 2 {
		t.Error(err)
	}
	if err := call("busy"); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	if _, err := one.Call(ctx, 2, make([]byte, a.RequestBytesMax+32<<20)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if _, err := one.Call(ctx, 9, nil); !errors.Is(err, ErrUnknownPeer) {
		t.Error(err)
	}
	if _, err := one.Call(ctx, 1, nil); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("to itself: %v", err)
	}
	var waiting sync.WaitGroup
	for range 2 {
		waiting.Go(func() {
			if err := call("wait"); err != nil {
				t.Error(err)
			}
		})
	}
	for two.Stats().RequestsServed != 5 {
		time.Sleep(time.Millisecond)
	}
	if err := call("more"); !errors.Is(err, ErrBusy) {
		t.Errorf("above RequestsMax: %v", err)
	}
	close(release)
	waiting.Wait()
	if err := call(strings.Repeat("x", 1<<20)); err != nil {
		t.Errorf("the largest: %v", err)
	}
	for two.Stats().InboundBytes != 0 { // given back after the answer
		time.Sleep(time.Millisecond)
	}
	if s := two.Stats(); s.RequestsRefused != 1 {
		t.Errorf("%+v", s)
	}
}

// The inbound budget refuses; the connection and others live on.
func TestInboundBudget(t *testing.T) {
	m := newTestNetwork(t, 1)
	release := make(chan struct{})
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	rec := newRecorder()
	b.BatchBytesMax, b.RequestBytesMax, b.ResponseBytesMax = 1000, 1000, 1000
	b.PullRequestBytesMax, b.ConnBytesMax, b.InboundBytesMax = 1000, 1000, 1000
	b.OnBatch = rec.onBatch
	b.OnRequest = func(context.Context, Peer, []byte) ([]byte, error) { <-release; return nil, nil }
	one, two := pair(t, a, b)
	ctx := testContext(t)
	done := make(chan error, 1)
	go func() {
		_, err := one.Call(ctx, 2, make([]byte, 600))
		done <- err
	}()
	for two.Stats().InboundBytes != 600 {
		time.Sleep(time.Millisecond)
	}
	if _, err := one.Call(ctx, 2, make([]byte, 600)); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	batches, err := one.OpenBatches(ctx, 2, FullFails)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{600, 300} {
		if err := batches.Send(bytes.Repeat([]byte("x"), n)); err != nil {
			t.Fatal(err)
		}
	}
	rec.wait(t, "the small batch", func() bool { return len(rec.batches) == 1 && len(rec.batches[0]) == 300 })
	if s := two.Stats(); s.BatchesRefused != 1 {
		t.Errorf("%+v", s)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
