package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/transport"
)

const testCall uint8 = 7

// echo answers with who asked and what.
func echo(_ context.Context, from int32, payload []byte) ([]byte, error) {
	if string(payload) == "fail" {
		return nil, fmt.Errorf("%w: no room at the inn, 7 of 7", ErrBusy)
	}
	return fmt.Appendf(nil, "%d:%s", from, payload), nil
}

// A node without a network answers its own calls.
func TestCallAlone(t *testing.T) {
	n, err := OpenNode(testContext(t), NodeConfig{ID: 4, Host: HostConfig{FS: memDir(t), Dir: "/data", JournalBytes: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(testContext(t)); err != nil {
			t.Error(err)
		}
	}()
	ctx := testContext(t)
	if _, err := n.Call(ctx, 4, testCall, nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a kind that nobody serves: %v", err)
	}
	n.Handle(testCall, echo)
	if b, err := n.Call(ctx, 4, testCall, []byte("hello")); string(b) != "4:hello" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := n.Call(ctx, 5, testCall, nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("another node: %v", err)
	}
}

func memDir(t testing.TB) *vfs.Mem {
	fs := vfs.NewMem()
	if err := errors.Join(fs.MkdirAll("/data"), fs.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	return fs
}

// Calls reach other nodes, and so do the answers, the errors' words, and the end of the caller's patience.
func TestCallOthers(t *testing.T) {
	n := newMemberNet(t)
	all := n.trioOf(0, vfs.NewMem(), vfs.NewMem(), vfs.NewMem())
	ctx := testContext(t)
	for _, m := range all {
		m.Handle(testCall, echo)
	}
	for to := int32(1); to <= 3; to++ {
		if b, err := all[0].Call(ctx, to, testCall, []byte("x")); string(b) != "1:x" || err != nil {
			t.Errorf("node %d: %q, %v", to, b, err)
		}
		_, err := all[0].Call(ctx, to, testCall, []byte("fail"))
		if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "no room at the inn, 7 of 7") {
			t.Errorf("node %d: %v", to, err)
		}
	}
	if _, err := all[0].Call(ctx, 2, testCall+1, nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a kind that nobody serves: %v", err)
	}
	if _, err := all[0].Call(ctx, 9, testCall, nil); !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrAmbiguous) {
		t.Errorf("a node that is none: %v", err)
	}
	large := make([]byte, wireBatchMax)
	if _, err := all[0].Call(ctx, 2, testCall, large); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a payload that is too large: %v", err)
	}
	ended := make(chan struct{})
	begun := make(chan struct{})
	all[1].Handle(testCall, func(ctx context.Context, _ int32, _ []byte) ([]byte, error) {
		close(begun)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	patience, cancel := context.WithCancel(ctx)
	go func() {
		<-begun
		cancel()
	}()
	if _, err := all[0].Call(patience, 2, testCall, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up: %v", err)
	}
	<-ended
	all[2].close()
	if _, err := all[0].Call(ctx, 3, testCall, nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a node that is closed: %v", err)
	}
	all[1].close()
	all[0].close()
}

// As many calls as may wait for a node leave room for everything else, and the next one is refused. A node that closes ends them.
func TestCallsLeaveRoom(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of calls")
	}
	n := newMemberNet(t)
	all := n.trioOf(0, vfs.NewMem(), vfs.NewMem(), vfs.NewMem())
	ctx := testContext(t)
	waiting, answers := make(chan struct{}, callsMax), make(chan error, callsMax)
	all[1].Handle(testCall, func(ctx context.Context, _ int32, p []byte) ([]byte, error) {
		waiting <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	for range callsMax {
		go func() {
			_, err := all[0].Call(ctx, 2, testCall, []byte("wait"))
			answers <- err
		}()
	}
	for range callsMax {
		select {
		case <-waiting:
		case err := <-answers:
			t.Fatal(err)
		case <-ctx.Done():
			t.Fatal("not all calls run")
		}
	}
	if _, err := all[0].Call(ctx, 2, testCall, nil); !errors.Is(err, ErrBusy) {
		t.Errorf("one call more: %v", err)
	}
	if dir := all[0].Host.directoryOf(ctx, 2); dir != all[1].identity.Dir {
		t.Error("a request had no place beside the calls")
	}
	all[1].Handle(testCall, echo)
	if b, err := all[2].Call(ctx, 2, testCall, []byte("y")); string(b) != "3:y" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	all[1].close()
	for range callsMax {
		if err := <-answers; err == nil {
			t.Fatal("a call was answered by a node that closed")
		}
	}
	all[2].close()
	all[0].close()
}

// The bytes that calls ask with have a bound, and one that is larger goes alone.
func TestCallBytes(t *testing.T) {
	var c calls
	leave, ok := c.enter(&c.mu.out, 1, 2*callBytesMax)
	if !ok {
		t.Fatal("a large call does not go alone")
	}
	if _, ok := c.enter(&c.mu.out, 1, 1); ok {
		t.Error("another one goes beside it")
	}
	if _, ok := c.enter(&c.mu.out, 2, 1); !ok {
		t.Error("it holds up calls of other nodes")
	}
	leave()
	if _, ok := c.enter(&c.mu.out, 1, callBytesMax); !ok {
		t.Error("its bytes were not given back")
	}
}

// What another node sends as a call is refused when it is none.
func TestCallMalformed(t *testing.T) {
	h := &Host{}
	if _, err := h.answerCall(context.Background(), 2, nil); !errors.Is(err, errWire) {
		t.Error(err)
	}
	if b, err := h.answerCall(context.Background(), 2, []byte{1}); err != nil || !bytes.Equal(b, []byte{0xff, 0xfe}) {
		t.Errorf("%x, %v", b, err)
	}
	if err := callError(context.Background(), 2, transport.ErrConnLost); !errors.Is(err, ErrUnreachable) || !errors.Is(err, ErrAmbiguous) {
		t.Error(err)
	}
}
