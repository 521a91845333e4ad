package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// reopen: kill -9 of a process that writes, then the time from the start of
// the next process to its first acknowledged record, with 1 and with 4 GiB in
// the partition. billet acknowledges when a record is on disk; JetStream does
// not, which is its faster way, and its duplicate window is short.
func reopen(o options) family {
	f := family{name: "reopen"}
	for _, gib := range []int64{1, 4} {
		size := fmt.Sprintf("%dGiB", gib)
		f.sides = append(f.sides,
			reopenSide("billet-"+size, kindBillet, "billet", shape{Partitions: 1, Durable: true}, o.records(gib<<20)),
			reopenSide("jetstream-"+size, kindPeer, "jetstream", shape{Partitions: 1, Ingest: "fast", ShortWindow: true}, o.records(gib<<20)))
	}
	ms := func(side string) metric { return metric{side: side, name: "ms"} }
	over := func(system string) metric {
		small := ms(system + "-1GiB")
		return metric{side: system + "-4GiB", name: "ms", over: &small}
	}
	line := func(size string) benchCase {
		return benchCase{
			name: "reopen-kill9-" + size, unit: "ms", lowerBetter: true, billet: ms("billet-" + size), peers: []metric{ms("jetstream-" + size)},
			fields: "fsync=commit peer_fsync=default",
		}
	}
	four := line("4GiB")
	four.goals = []goal{atMost(300)}
	f.cases = []benchCase{line("1GiB"), four, {
		name: "reopen-kill9-4GiB-over-1GiB", unit: "factor", lowerBetter: true,
		billet: over("billet"), peers: []metric{over("jetstream")}, goals: []goal{atMost(1.5)},
	}}
	return f
}

// killAfter is how many records a writer has had acknowledged when it is
// killed, besides those of the fill.
const killAfter = 64 << 10

// reopenSide fills a log and, in every run, kills its writer at work and opens
// it anew. The last opened child waits for the next run.
func reopenSide(name string, k kind, system string, s shape, records int64) *side {
	var writer *child
	var held int64 // records acknowledged so far
	spec := childSpec{System: system, Shape: s}
	prepare := func(_ context.Context, dir string) (err error) {
		spec.Dir = dir
		// The children outlive the context of one step.
		if writer, err = spawn(context.Background(), spec); err != nil {
			return err
		}
		if err := writer.expect("ready"); err != nil {
			return err
		}
		spec.Shape.Existing = true
		acked, err := writer.ingest(records, records)
		held = 1 + acked
		return err
	}
	run := func(ctx context.Context, dir string) (measures, error) {
		acked, err := writer.ingest(0, killAfter)
		if err != nil {
			return nil, err
		}
		acked = max(acked, writer.killAtWork())
		held += acked
		if writer, err = spawn(context.Background(), spec); err != nil {
			return nil, err
		}
		if err := writer.expect("ready"); err != nil {
			return nil, err
		}
		elapsed := time.Since(writer.started)
		held++
		var records int64
		if err := writer.tell("count", "count", &records); err != nil {
			return nil, err
		}
		if records < held {
			return nil, fmt.Errorf("%d records acknowledged before the kill, %d held after it", held, records)
		}
		notes.Printf("%s: %d acknowledged, %d held", name, held, records)
		held = records
		return measures{"ms": float64(elapsed.Microseconds()) / 1e3}, nil
	}
	finish := func() {
		if writer != nil {
			writer.kill()
		}
	}
	return &side{name: name, kind: k, prepare: prepare, run: run, finish: finish}
}

// killAtWork kills a child that ingests and returns the last number of
// acknowledged records that it printed.
func (c *child) killAtWork() (acked int64) {
	c.command.Process.Kill()
	for _, line := range c.drain() {
		if number, ok := strings.CutPrefix(line, "acked "); ok {
			fmt.Sscan(number, &acked) // a line cut short by the kill counts for less
		}
	}
	c.command.Wait()
	return acked
}
