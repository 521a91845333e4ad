package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const idlePartitions = 300

// clusterIdle: what each of three nodes uses while its replicas of 300 partitions
// have nothing to do: of one core, and memory above that of a node without them.
func clusterIdle(o options) family {
	wait, partitions := o.duration(10*time.Second), idlePartitions
	if o.quick {
		partitions /= 10
	}
	f := family{
		name: "cluster-idle",
		sides: []*side{
			clusterIdleSide("billet", kindBillet, partitions, wait),
			clusterIdleSide("jetstream", kindPeer, partitions, wait),
		},
	}
	f.sides[1].runs = 1 // making the streams takes long
	f.cases = []benchCase{
		{
			name: "cluster-idle-300-processor", unit: "percent", lowerBetter: true,
			billet: metric{side: "billet", name: "percent"}, peers: []metric{{side: "jetstream", name: "percent"}},
			fields: fmt.Sprintf("of=one-core,the-busiest-node partitions=%d", partitions), goals: []goal{atMost(5)},
		},
		{
			name: "cluster-idle-300-memory", unit: "KiB", lowerBetter: true,
			billet: metric{side: "billet", name: "KiB"}, peers: []metric{{side: "jetstream", name: "KiB"}},
			fields: "of=one-idle-replica",
		},
	}
	return f
}

func clusterIdleSide(name string, k kind, partitions int, wait time.Duration) *side {
	return &side{name: name, kind: k, run: func(ctx context.Context, dir string) (m measures, err error) {
		n, err := startNodes(ctx, nodeSpec{System: name, Dir: dir, Durable: k == kindBillet}, clusterNodes)
		if err != nil {
			return nil, err
		}
		defer n.kill()
		if err := n.wait(); err != nil {
			return nil, err
		}
		_, before, err := n.rest(wait / 4)
		if err != nil {
			return nil, err
		}
		if err := n.children[0].tell(fmt.Sprint("create ", partitions), "created"); err != nil {
			return nil, err
		}
		if _, _, err := n.rest(wait / 2); err != nil {
			return nil, err
		}
		percent, after, err := n.rest(wait)
		return measures{"percent": percent, "KiB": (after - before) * kib / float64(partitions), "MiB": after}, err
	}}
}

// rest lets the processes be and returns the greatest share of a core that one
// took meanwhile, in percent, and their memory on average, in MiB.
func (n *nodes) rest(wait time.Duration) (percent, mib float64, err error) {
	shares, sizes := make([]float64, len(n.children)), make([]float64, len(n.children))
	err = n.each(func(i int, c *child) (err error) {
		var before, after float64
		if err := errors.Join(c.tell("free", "freed"), c.tell("usage", "usage", &before)); err != nil {
			return err
		}
		start := time.Now()
		time.Sleep(wait)
		elapsed := time.Since(start)
		if err := errors.Join(c.tell("usage", "usage", &after), c.tell("free", "freed")); err != nil {
			return err
		}
		shares[i] = 100 * (after - before) / float64(elapsed.Microseconds())
		sizes[i], err = statusMiB(c.command.Process.Pid, "VmRSS")
		return err
	})
	for i := range shares {
		percent = max(percent, shares[i])
		mib += sizes[i] / float64(len(sizes))
	}
	return percent, mib, err
}
