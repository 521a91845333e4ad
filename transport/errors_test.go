package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Every code leads to a sentinel and back.
func TestRefusalCodes(t *testing.T) {
	for code := RefusedVersion; code <= RefusedClosing; code++ {
		err := fmt.Errorf("x: %w", &RefusedError{Node: 3, Code: code, Reason: "because", ByPeer: true})
		if refusalErrors[code] == nil || !errors.Is(err, refusalErrors[code]) || !strings.Contains(err.Error(), "refused by node 3: because") {
			t.Errorf("%d: %v", code, err)
		}
	}
	if err := (&RefusedError{Node: 3, Reason: "because"}).Error(); err != "transport: refused node 3: because" {
		t.Error(err)
	}
	if len(refusalErrors) != int(RefusedClosing) {
		t.Error("codes in the table that are not named")
	}
}

func TestAnswerCodes(t *testing.T) {
	for _, c := range []struct{ sent, got error }{
		{fmt.Errorf("log: %w", ErrBusy), ErrBusy},
		{fmt.Errorf("log: %w", ErrTooLarge), ErrTooLarge},
		{context.DeadlineExceeded, ErrTimeout},
		{ErrTimeout, ErrTimeout},
	} {
		code, text := answerOf(c.sent)
		if err := answerError(3, code, text); !errors.Is(err, c.got) || !strings.Contains(err.Error(), "node 3") {
			t.Errorf("%v became %v", c.sent, err)
		}
	}
	long := strings.Repeat("ä\n", 2000)
	code, text := answerOf(errors.New(long))
	var remote *RemoteError
	if err := answerError(3, code, text); !errors.As(err, &remote) || len(text) > answerTextMax || strings.Contains(err.Error(), "\n") {
		t.Errorf("%d bytes: %v", len(text), err)
	}
	if err := answerError(3, 999, []byte("from a later version")); !errors.As(err, &remote) || err.Error() != "transport: node 3: from a later version" {
		t.Error(err)
	}
}

// What is not served says so.
func TestNotServed(t *testing.T) {
	m := newTestNetwork(t, 1)
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	b.OnRequest = nil
	one, _ := pair(t, a, b)
	ctx := testContext(t)
	if _, err := one.Call(ctx, 2, []byte("x")); !errors.Is(err, ErrNotServed) {
		t.Error(err)
	}
	if _, err := one.OpenBatches(ctx, 2, FullFails); !errors.Is(err, ErrNotServed) {
		t.Error(err)
	}
	if _, err := one.Pull(ctx, 2, PullRequest{}); !errors.Is(err, ErrNotServed) {
		t.Error(err)
	}
	if one.PeerState(2).Status != PeerReachable {
		t.Errorf("%+v", one.PeerState(2))
	}
	if one.Addr() != nil {
		t.Error("it listens")
	}
}
