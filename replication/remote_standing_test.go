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
