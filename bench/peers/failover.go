package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

const (
	failoverTries   = 20
	failoverTimeMax = 10 * time.Minute // of all tries
	disturbed       = 500 * time.Millisecond
	settledFor      = 300 * time.Millisecond
)

// ending is how a leader's node ends in a try.
type ending string

const (
	endKill  ending = "kill"  // SIGKILL
	endStop  ending = "stop"  // SIGSTOP, and SIGCONT when others lead
	endClose ending = "close" // in order
)

// underLoad is a cluster of three nodes, of which the last is in this process and
// the others in processes of their own, and a load on it through the last.
type underLoad interface {
	// lanes are the partitions under load.
	lanes() []*lane
	// leads returns who leads each lane, as soon as all replicas are well and a
	// node in another process leads one.
	leads(ctx context.Context) ([]int, error)
	// verify ends the load and checks that nothing acknowledged is lost or out of
	// order.
	verify(ctx context.Context) error
	Close() error
}

// failover: the longest time without an acknowledgement when the node of a leader
// ends under load, over some tries. Where a node leads several partitions, that of
// the one that suffers most.
func failover(o options) family {
	tries := func(n int) int {
		if o.quick {
			return 1
		}
		return n
	}
	f := family{name: "cluster-failover"}
	for _, c := range []struct {
		end           ending
		ours, theirs  int
		median, worst float64
	}{{endKill, failoverTries, 5, 250, 2000}, {endClose, failoverTries, 5, 0, 50}, {endStop, failoverTries, 0, 0, 6000}} {
		if o.quick {
			c.theirs = 0 // an election takes JetStream seconds
		}
		ours, theirs := "billet-"+string(c.end), "jetstream-"+string(c.end)
		f.sides = append(f.sides, failoverSide(ours, kindBillet, c.end, tries(c.ours)))
		p50 := benchCase{name: fmt.Sprintf("cluster-%s-leader-p50", c.end), unit: "ms", lowerBetter: true, billet: metric{side: ours, name: "p50"}}
		worst := p50
		worst.name, worst.billet = fmt.Sprintf("cluster-%s-leader-max", c.end), metric{side: ours, name: "max"}
		worst.goals = []goal{atMost(c.worst)}
		if c.median > 0 {
			p50.goals = []goal{atMost(c.median)}
		}
		if c.theirs > 0 {
			f.sides = append(f.sides, failoverSide(theirs, kindPeer, c.end, c.theirs))
			p50.peers, worst.peers = []metric{{side: theirs, name: "p50"}}, []metric{{side: theirs, name: "max"}}
		}
		p50.fields = fmt.Sprintf("tries=%d peer_tries=%d", tries(c.ours), c.theirs)
		worst.fields = p50.fields
		f.cases = append(f.cases, p50, worst)
	}
	return f
}

func failoverSide(name string, k kind, end ending, tries int) *side {
	open := openBilletLoad
	if k == kindPeer {
		open = openJetStreamLoad
	}
	return &side{name: name, kind: k, runs: 1, timeMax: failoverTimeMax, run: func(ctx context.Context, dir string) (m measures, err error) {
		n, err := startNodes(ctx, nodeSpec{Dir: dir, System: systemOf(k), Durable: true}, clusterNodes-1)
		if err != nil {
			return nil, err
		}
		defer n.kill()
		load, err := open(ctx, n)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, load.Close()) }()
		var gaps latencies
		for range tries {
			gap, err := try(ctx, n, load, end)
			if err != nil {
				return nil, err
			}
			notes.Printf("cluster-failover: %s: %v", name, gap)
			gaps = append(gaps, gap)
		}
		if err := load.verify(ctx); err != nil {
			return nil, err
		}
		each := gaps.measures()
		return measures{"p50": each["p50"] / 1e3, "max": gaps.quantile(1) / 1e3}, nil
	}}
}

func systemOf(k kind) string {
	if k == kindPeer {
		return "jetstream"
	}
	return "billet"
}

// try ends the other process that leads most and returns the longest time without
// an acknowledgement in what it led. Then it brings the node back.
func try(ctx context.Context, n *nodes, load underLoad, end ending) (gap time.Duration, err error) {
	leaders, err := load.leads(ctx)
	if err != nil {
		return 0, err
	}
	time.Sleep(settledFor)
	victim, most := 0, 0
	for i := range n.children {
		led := 0
		for _, leader := range leaders {
			if leader == i {
				led++
			}
		}
		if led > most {
			victim, most = i, led
		}
	}
	for _, l := range load.lanes() {
		l.watch()
	}
	start := time.Now()
	back, err := n.end(victim, end)
	if err != nil {
		return 0, err
	}
	after := start.Add(disturbed)
	for i, l := range load.lanes() {
		if leaders[i] != victim {
			continue
		}
		if err := poll(ctx, fmt.Sprintf("no acknowledgement in lane %d", i), func() bool {
			_, over, failure := l.since(after)
			err = failure
			return over || failure != nil
		}); err != nil {
			return 0, err
		}
		if err != nil {
			return 0, err
		}
		longest, _, _ := l.since(after)
		gap = max(gap, longest)
	}
	return gap, back(ctx)
}

// end ends the process of node i and returns how to bring it back.
func (n *nodes) end(i int, how ending) (back func(context.Context) error, err error) {
	c := n.children[i]
	again := func(ctx context.Context) error { return n.start(ctx, i) }
	switch how {
	case endStop:
		process := c.command.Process
		return func(context.Context) error { return process.Signal(syscall.SIGCONT) }, process.Signal(syscall.SIGSTOP)
	case endClose:
		return again, c.quit()
	}
	c.kill()
	return again, nil
}
