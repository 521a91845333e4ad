package replication

import (
	"testing"
	"time"
)

// Two that campaign at the same time split the votes, and one of them is elected soon after, without an election timeout.
func TestSplitVotesAreNotSplitAgain(t *testing.T) {
	for range 3 {
		c := newPatientTrio(t, 0)
		c.produce(-1, "a")
		_, term, _ := c.nodes[0].host.guard.leader(2)
		c.net.isolate(2, true) // nobody gets a request for a vote
		c.net.isolate(3, true)
		for _, i := range []int{1, 2} {
			c.nodes[i].host.net.timeoutNow(2, c.parts[i].spec.Replica)
			eventually(t, "a candidate", func() bool {
				_, now, ok := c.nodes[i].host.guard.leader(2)
				return !ok && now > term
			})
		}
		c.kill(0)
		c.net.isolate(2, false)
		c.net.isolate(3, false)
		eventually(t, "the survivors reach each other", func() bool {
			return c.nodes[1].host.reachable(3) && c.nodes[2].host.reachable(2)
		})
		began := time.Now()
		for rank, i := range []int{1, 2} { // as after a first campaign
			h := c.nodes[i].host
			_, now, _ := h.guard.leader(2)
			s := &succession{p: c.parts[i], loss: loss{node: 1, incarnation: 99}, leader: replicaID(1, 1), term: term, heard: now, rank: rank, ranks: 2,
				shots: 1, due: began.Add(time.Duration(rank) * failoverStagger), until: began.Add(time.Minute), again: failoverAgain}
			h.spawn(func() {
				for h.succeed(s, time.Now()) && pause(h.ctx, time.Until(s.due)) {
				}
			})
		}
		if _, at := c.produce(0, "b"); at != 1 {
			t.Errorf("offset %d", at)
		}
		if took := time.Since(began); took >= patientBound {
			t.Errorf("an election timeout went by: %v", took)
		}
		c.close()
	}
}
