package replication

import (
	"errors"
	"fmt"
	"testing"

	"github.com/billetlog/billet/segment"
)

// leading is the route of the node that leads.
func (r *remoteRig) leading() (*Route, int) {
	r.t.Helper()
	l := r.leader(-1)
	eventually(r.t, "the leader's node knows", func() bool {
		l = r.leader(-1)
		r.routes[l].retarget()
		return r.routes[l].Current()
	})
	return r.routes[l], l
}

// A node that ceases to lead knows where the partition stood: a consumer that looks then is not told that its position is out of range.
func TestRouteRemembersStanding(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	for i := range 5 {
		appendTo(t, r.route(0), textBatch(t, fmt.Sprint("v", i)))
	}
	route, _ := r.leading()
	route.mu.Lock()
	defer route.mu.Unlock()
	route.mu.known, route.mu.at = true, standing{hw: 2, end: 2} // heard long ago
	here, leader := route.here.Load(), route.mu.leader
	if here == nil {
		t.Skip("the leader moved")
	}
	route.setLeaderLocked(nil, wireLeader{})
	if at := route.mu.at; !route.mu.known || at.hw != 5 || at.end != 5 || at.epoch != leader.epoch {
		t.Errorf("known is %+v", at)
	}
}

// What a node tells of the high watermark does not fall because a new leader is slower to apply what it has, nor behind what was read from one that
// moved on meanwhile. A log that is shorter than what was told is believed.
func TestRouteHighWatermarkDoesNotFall(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	for i := range 5 {
		appendTo(t, r.route(0), textBatch(t, fmt.Sprint("v", i)))
	}
	route := r.route(outsider)
	high := func(s standing, want int64) {
		t.Helper()
		if route.learn(s); route.HighWatermark() != want {
			t.Errorf("the high watermark is %d after %+v, want %d", route.HighWatermark(), s, want)
		}
	}
	high(standing{hw: 10, end: 10, epoch: maxEpoch - 3}, 10)
	high(standing{hw: 8, end: 10, epoch: maxEpoch - 2}, 10)
	high(standing{hw: 9, end: 11, epoch: maxEpoch - 2}, 10)
	high(standing{hw: 8, end: 9, epoch: maxEpoch - 1}, 8)

	c := r.routes[outsider].NewCursor()
	defer c.Close()
	route.mu.Lock()
	route.mu.known, route.mu.at = true, standing{hw: 1, end: 1, epoch: maxEpoch} // no answer of the leader counts
	route.mu.Unlock()
	eventually(t, "all is read", func() bool {
		got, err := c.Read(nil, 0, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return len(got) > 0
	})
	if route.HighWatermark() != 5 {
		t.Errorf("the high watermark is %d, 5 records were read", route.HighWatermark())
	}
}

// A replica that was deposed and has not heard of it is not taken for the leader, here or elsewhere.
func TestRouteMistrustsDeposedLeader(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	appendTo(t, r.route(outsider), textBatch(t, "a"))
	// Elsewhere: it is behind what is known.
	route := r.route(outsider)
	route.learn(standing{hw: 10, end: 10, epoch: maxEpoch})
	c := route.NewCursor()
	defer c.Close()
	for range 20 {
		if data, err := c.Read(nil, 5, 1000); err != nil || len(data) > 0 {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
		if err := c.Wait(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "what nobody has is out of range", func() bool {
		_, err := c.Read(nil, 77, 1000)
		return errors.Is(err, segment.ErrUnavailable)
	})
	// Here: the table knows of a later epoch.
	near, l := r.leading()
	r.routers[l].table.learn(leadership{wirePartition: near.key, shard: near.shard.Load(), epoch: maxEpoch, replica: replicaID(outsider+1, 1), serial: 1, leading: true})
	if near.retarget(); near.Current() {
		t.Error("a leader of an earlier epoch is read")
	}
}

// A replica that is behind what was deleted meanwhile is not read, and nobody is sent back to where it stands.
func TestRouteLocalIsPassed(t *testing.T) {
	r := newRemoteRig(t)
	defer r.close()
	appendTo(t, r.route(outsider), textBatch(t, "a"))
	f := r.follower()
	local := r.routes[f].ReadLocal()
	eventually(t, "the follower has it", func() bool { return r.parts[f].HighWatermark() == 1 })
	if start, high := local.StartOffset(), local.HighWatermark(); start != 0 || high != 1 {
		t.Fatalf("%d to %d can be read", start, high)
	}
	r.routes[f].learn(standing{start: 1, hw: 5, end: 5, epoch: maxEpoch})
	if start, high := local.StartOffset(), local.HighWatermark(); start != 0 || high != 1 {
		t.Errorf("%d to %d can be read while it has all that was deleted", start, high)
	}
	r.routes[f].learn(standing{start: 2, hw: 5, end: 5, epoch: maxEpoch})
	if start, high := local.StartOffset(), local.HighWatermark(); start != 2 || high != 5 {
		t.Errorf("%d to %d can be read when the leader has 2 to 5", start, high)
	}
}
