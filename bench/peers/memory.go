package main

import (
	"context"
	"fmt"
	"time"
)

// idle: resident memory of a node that has taken one record of 1 KiB in every
// partition, and nothing for some seconds. The limit is this program opening nothing.
func idle(o options) family {
	wait := o.duration(4 * time.Second)
	f := family{name: "rss-idle", parallel: true, sides: []*side{idleSide("harness", kindRaw, childSpec{}, wait)}}
	for _, c := range []struct{ ours, theirs, most int }{{16, 10, 40}, {1000, 1000, 120}} {
		ours, theirs := fmt.Sprintf("billet-%d", c.ours), fmt.Sprintf("jetstream-%d", c.theirs)
		f.sides = append(f.sides,
			idleSide(ours, kindBillet, childSpec{System: "billet", Shape: shape{Partitions: c.ours, Durable: true}}, wait),
			idleSide(theirs, kindPeer, childSpec{System: "jetstream", Shape: shape{Partitions: c.theirs}}, wait))
		f.cases = append(f.cases, benchCase{
			name: fmt.Sprintf("rss-idle-%d", c.ours), unit: "MiB", lowerBetter: true,
			billet: metric{side: ours, name: "MiB"},
			limit:  metric{side: "harness", name: "MiB"},
			peers:  []metric{{side: theirs, name: "MiB"}},
			fields: fmt.Sprintf("limit_is=empty-process peer_streams=%d", c.theirs), goals: []goal{atMost(float64(c.most))},
		})
	}
	return f
}

func idleSide(name string, k kind, spec childSpec, wait time.Duration) *side {
	return &side{name: name, kind: k, run: func(ctx context.Context, dir string) (measures, error) {
		spec := spec
		spec.Dir = dir
		return withChild(ctx, spec, func(c *child) (measures, error) {
			time.Sleep(wait / 2)
			if err := c.tell("free", "freed"); err != nil {
				return nil, err
			}
			time.Sleep(wait / 2)
			return residentMiB(c, "VmRSS")
		})
	}}
}

// ingesting: the most resident memory of a process while it takes 4 GiB of
// 1 KiB records as fast as it can.
func ingesting(o options) family {
	records := o.records(4 << 20)
	ours := ingestingSide("billet", kindBillet, childSpec{System: "billet", Shape: shape{Partitions: 1, Durable: true}}, records)
	theirs := ingestingSide("jetstream", kindPeer, childSpec{System: "jetstream", Shape: shape{Partitions: 1}}, records)
	theirs.runs = 2 // each takes half a minute
	return family{
		name:  "rss-ingest",
		sides: []*side{ours, theirs},
		cases: []benchCase{{
			name: "rss-ingest-4GiB", unit: "MiB", lowerBetter: true,
			billet: metric{side: "billet", name: "MiB"},
			peers:  []metric{{side: "jetstream", name: "MiB"}},
			fields: "fsync=commit peer_fsync=default", goals: []goal{atMost(200)},
		}},
	}
}

func ingestingSide(name string, k kind, spec childSpec, records int64) *side {
	return &side{name: name, kind: k, run: func(ctx context.Context, dir string) (measures, error) {
		spec := spec
		spec.Dir = dir
		return withChild(ctx, spec, func(c *child) (measures, error) {
			if _, err := c.ingest(records, records); err != nil {
				return nil, err
			}
			return residentMiB(c, "VmHWM")
		})
	}}
}

// withChild runs a measurement on a child that is ready, and ends the child.
func withChild(ctx context.Context, spec childSpec, measure func(*child) (measures, error)) (measures, error) {
	c, err := spawn(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := c.expect("ready"); err != nil {
		c.kill()
		return nil, err
	}
	m, err := measure(c)
	if err != nil {
		c.kill()
		return nil, err
	}
	return m, c.quit()
}

// residentMiB returns VmRSS or VmHWM of a child, and how much of its memory
// now is not file pages.
func residentMiB(c *child, name string) (measures, error) {
	mib, err := statusMiB(c.command.Process.Pid, name)
	if err != nil {
		return nil, err
	}
	anonymous, err := statusMiB(c.command.Process.Pid, "RssAnon")
	return measures{"MiB": mib, "anonymous now": anonymous}, err
}
