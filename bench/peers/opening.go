package main

import (
	"context"
	"time"
)

const openPartitions = 200

// opening: a node with 200 partitions that was closed in order, from the start
// of a process until every partition has acknowledged a record.
func opening(o options) family {
	return family{
		name: "open-200",
		sides: []*side{
			openingSide("billet", kindBillet, "billet", shape{Partitions: openPartitions, Durable: true}),
			openingSide("jetstream", kindPeer, "jetstream", shape{Partitions: openPartitions}),
		},
		cases: []benchCase{{
			name: "open-200-partitions", unit: "ms", lowerBetter: true,
			billet: metric{side: "billet", name: "ms"},
			peers:  []metric{{side: "jetstream", name: "ms"}},
			fields: "fsync=commit peer_fsync=default", goals: []goal{atMost(1000)},
		}},
	}
}

func openingSide(name string, k kind, system string, s shape) *side {
	once := func(ctx context.Context, dir string, existing bool) (ready time.Duration, err error) {
		s := s
		s.Existing = existing
		c, err := spawn(ctx, childSpec{System: system, Dir: dir, Shape: s})
		if err != nil {
			return 0, err
		}
		if err := c.expect("ready"); err != nil {
			c.kill()
			return 0, err
		}
		ready = time.Since(c.started)
		return ready, c.quit()
	}
	return &side{
		name: name, kind: k,
		prepare: func(ctx context.Context, dir string) error {
			_, err := once(ctx, dir, false)
			return err
		},
		run: func(ctx context.Context, dir string) (measures, error) {
			ready, err := once(ctx, dir, true)
			return measures{"ms": float64(ready.Microseconds()) / 1e3}, err
		},
	}
}
