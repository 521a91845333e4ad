package transport

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A node without a cluster takes and makes nothing but streams, and from SetCluster on everything.
func TestSetCluster(t *testing.T) { synctest.Test(t, setCluster) }

func setCluster(t *testing.T) {
	m := newTestNetwork(t, 1)
	fresh, member := newRecorder(), newRecorder()
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	a.ClusterID, a.ListenAddress, a.OnStream, a.OnPeerState, a.OnBatch = ClusterID{}, "a", echo, fresh.onState, fresh.onBatch
	b.ListenAddress, b.OnStream, b.OnPeerState = "b", echo, member.onState
	// Only what SetCluster does at once is in time.
	b.BackoffMin, b.BackoffMax = time.Minute, time.Minute
	a.BackoffMin, a.BackoffMax = time.Minute, time.Minute
	one, two := startNode(t, a), startNode(t, b)
	one.SetAddress(2, "b")
	two.SetAddress(1, "a")

	state := member.waitState(t, 1, PeerRejected)
	var refused *RefusedError
	if !errors.As(state.Err, &refused) || refused.Code != RefusedCluster || !strings.Contains(refused.Reason, "no cluster yet") {
		t.Errorf("%v", state.Err)
	}
	ctx := testContext(t)
	_, err := one.Call(ctx, 2, nil)
	_, err2 := one.OpenBatches(ctx, 2, FullFails)
	_, err3 := one.Pull(ctx, 2, PullRequest{})
	for _, err := range []error{err, err2, err3} {
		if !errors.Is(err, ErrUnreachable) || !errors.Is(err, ErrNoCluster) {
			t.Errorf("without a cluster: %v", err)
		}
	}
	synctest.Wait() // whatever its link to node 2 does without a cluster is done
	if s := one.Stats(); s.Dials != 0 || one.PeerState(2).Status != PeerUnknown || one.Cluster() != (ClusterID{}) {
		t.Errorf("%+v, %+v", s, one.PeerState(2))
	}
	openStream(t, one, "b")
	openStream(t, two, "a")

	if err := one.SetCluster(ClusterID{}); !errors.Is(err, ErrInvalidOptions) {
		t.Error(err)
	}
	for range 2 {
		if err := one.SetCluster(testCluster); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.SetCluster(ClusterID{9}); !errors.Is(err, ErrWrongCluster) || one.Cluster() != testCluster {
		t.Error(err)
	}
	if _, err := one.Call(ctx, 2, nil); err != nil {
		t.Error(err)
	}
	fresh.waitState(t, 2, PeerReachable)
	member.waitState(t, 1, PeerReachable) // its connection came in
	if _, err := two.Call(ctx, 1, nil); err != nil {
		t.Error(err)
	}
	if _, err := two.OpenBatches(ctx, 1, FullFails); err != nil {
		t.Error(err)
	}
}

// Two nodes without a cluster are not in one together.
func TestNoClusterIsNoCluster(t *testing.T) {
	m := newTestNetwork(t, 1)
	b := testOptions(2, m.Host("b"))
	b.ListenAddress, b.ClusterID = "b", ClusterID{}
	n := startNode(t, b)
	h := testHello()
	h.versionMax, h.kind, h.cluster = 1, KindRequests, ClusterID{}
	conn := dialRaw(t, m, "b")
	if _, err := conn.Write(h.encode()); err != nil {
		t.Fatal(err)
	}
	if a, err := readAnswer(conn); err != nil || a.code != RefusedCluster || a.cluster != (ClusterID{}) {
		t.Errorf("%+v, %v", a, err)
	}
	n.SetAddress(1, "a") // its link waits; Close ends that
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := n.SetCluster(testCluster); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := n.Call(context.Background(), 1, nil); !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNoCluster) {
		t.Error(err)
	}
}
