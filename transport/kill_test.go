//go:build unix

package transport

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childVariable makes the test binary be a node in a process of its own.
const childVariable = "BILLET_TRANSPORT_CHILD"

// TestChildNode is the other process of TestKilledProcessIsGone, not a test.
func TestChildNode(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		t.Skip("only run as a child")
	}
	opts := testOptions(2, TCP{})
	opts.ListenAddress = "127.0.0.1:0"
	n := startNode(t, opts)
	os.Stdout.WriteString("address " + n.Addr().String() + "\n")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// startChild starts a node in another process and returns its address.
func startChild(t *testing.T) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), os.Args[0], "-test.run=^TestChildNode$")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "address ")
	if err != nil || !ok {
		t.Fatalf("the child said %q, %v", line, err)
	}
	return cmd, addr
}

// kill -9 is known at once; a stopped process is only silent, however long it lasts, and is reachable again when it goes on.
func TestKilledProcessIsGone(t *testing.T) {
	rec := newRecorder()
	opts := testOptions(1, TCP{})
	opts.OnPeerState, opts.HandshakeTimeout, opts.DeadPeerTimeout = rec.onState, 500*time.Millisecond, 1500*time.Millisecond
	one := startNode(t, opts)
	cmd, addr := startChild(t)
	one.SetAddress(2, addr)
	rec.waitState(t, 2, PeerReachable)

	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if state := rec.waitState(t, 2, PeerUnreachable); state.Gone() || state.Reset {
		t.Errorf("a stopped process: %+v", state)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	rec.waitState(t, 2, PeerReachable)

	began := time.Now()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	state := rec.waitState(t, 2, PeerRefusing)
	took := time.Since(began)
	if !state.Gone() {
		t.Errorf("a killed process: %+v", state)
	}
	t.Logf("gone %v after kill -9", took)
}

// With the options as they are by default, too.
func TestKilledProcessIsGoneByDefault(t *testing.T) {
	best := time.Hour
	for range 5 {
		rec := newRecorder()
		one := startNode(t, Options{ID: 1, ClusterID: testCluster, Transport: TCP{}, OnPeerState: rec.onState})
		cmd, addr := startChild(t)
		one.SetAddress(2, addr)
		rec.waitState(t, 2, PeerReachable)
		timer := time.NewTimer(50 * time.Millisecond) // above BackoffMin: what falls at once is not dialled again at once
		<-timer.C
		began := time.Now()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		state := rec.waitState(t, 2, PeerRefusing)
		took := time.Since(began)
		best = min(best, took)
		t.Logf("gone after %v, states %v", took, rec.statuses(2))
		if !state.Gone() {
			t.Errorf("%+v", state)
		}
	}
	// Of five, one at least was not kept waiting by the machine.
	if best > 500*time.Millisecond {
		t.Errorf("known after %v at best", best)
	}
}
