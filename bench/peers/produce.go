package main

import (
	"context"
	"errors"
	"time"
)

const kib = 1024

// ingestSide measures a load into a fresh system.
func ingestSide(name string, k kind, open opener, s shape, l load) *side {
	return &side{name: name, kind: k, run: func(ctx context.Context, dir string) (m measures, err error) {
		log, err := open(ctx, dir, s)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, log.Close()) }()
		records, elapsed, err := ingest(ctx, log, l)
		if err != nil {
			return nil, err
		}
		return throughput(records, l.size, elapsed), nil
	}}
}

// durableProduce: 1 KiB records into one partition as fast as one producer
// takes them, each on disk before its acknowledgement.
func durableProduce(o options) family {
	payloads := newPool(poolBytes)
	l := load{pool: payloads, size: kib, feeders: 1, duration: o.duration(2 * time.Second), records: o.records(1 << 20)}
	blocks := load{pool: payloads, size: o.batchBytes, feeders: 1, duration: l.duration}
	window := blocks
	window.size *= producerWindow()
	ours := metric{side: "billet", name: "MB/s"}
	limit := metric{side: "overwrite", name: "MB/s"}
	others := []metric{{side: "append", name: "MB/s"}, {side: "overwrite-window", name: "MB/s"}}
	line := benchCase{unit: "MB/s", billet: ours, limit: limit, extra: others, fields: "limit_is=overwrite+fdatasync"}
	async, atomic := line, line
	async.name, async.peers = "durable-produce-1KiB-1p-async", []metric{{side: "jetstream-async", name: "MB/s"}}
	async.goals = []goal{limitAtLeast(0.8), peerTimes(40)}
	atomic.name, atomic.peers = "durable-produce-1KiB-1p-atomic-batches", []metric{{side: "jetstream-atomic", name: "MB/s"}}
	atomic.goals = []goal{limitAtLeast(0.8), peerTimes(4)}
	return family{
		name: "durable-produce", warmBytes: o.records(3 << 28),
		sides: []*side{
			{name: "overwrite", prepare: prepareOverwrite, run: rawWrites(newOverwriter, blocks, true, 1)},
			{name: "append", run: rawWrites(newAppender, blocks, true, 1)},
			{name: "overwrite-window", prepare: prepareOverwrite, run: rawWrites(newOverwriter, window, true, 1)},
			ingestSide("billet", kindBillet, openBillet, shape{Partitions: 1, Durable: true, BatchBytes: o.batchBytes}, l),
			ingestSide("jetstream-async", kindPeer, openJetStream, shape{Partitions: 1, Durable: true, Ingest: "async"}, l),
			ingestSide("jetstream-atomic", kindPeer, openJetStream, shape{Partitions: 1, Durable: true, Ingest: "atomic"}, l),
		},
		cases: []benchCase{async, atomic},
	}
}

// intervalProduce: records into four partitions, acknowledged before they are
// on disk. JetStream may use its best way, on one stream or on four.
func intervalProduce(o options) []family {
	large := intervalFamily(o, "interval-produce-1KiB", kib, "MB/s")
	plain := load{pool: newPool(poolBytes), size: 1 << 20, feeders: 1, duration: o.duration(2 * time.Second), records: o.records(1<<20) / kib}
	large.sides = append([]*side{{name: "plain", run: rawWrites(newAppender, plain, false, 1)}}, large.sides...)
	line := &large.cases[0]
	line.name, line.limit, line.fields = "interval-produce-1KiB-4p", metric{side: "plain", name: "MB/s"}, "limit_is=sequential-writes-without-sync"
	line.goals = []goal{peerTimes(2), limitAtLeast(0.6)}
	small := intervalFamily(o, "interval-produce-100B", 100, "records/s")
	small.cases[0].name, small.cases[0].goals = "interval-produce-100B-4p", []goal{peerTimes(5)}
	return []family{large, small}
}

func intervalFamily(o options, name string, size int, unit string) family {
	const partitions = 4
	one := load{pool: newPool(poolBytes), size: size, feeders: 1, duration: o.duration(2 * time.Second), records: o.records(1<<30) / int64(size)}
	four := one
	four.feeders = partitions
	f := family{
		name: name, warmBytes: o.records(5 << 28),
		sides: []*side{
			ingestSide("billet", kindBillet, openBillet, shape{Partitions: partitions, BatchBytes: o.batchBytes}, one),
			ingestSide("jetstream-async", kindPeer, openJetStream, shape{Partitions: 1, Ingest: "async"}, four),
			ingestSide("jetstream-fast", kindPeer, openJetStream, shape{Partitions: 1, Ingest: "fast"}, one),
			ingestSide("jetstream-fast-4", kindPeer, openJetStream, shape{Partitions: partitions, Ingest: "fast"}, four),
		},
	}
	line := benchCase{unit: unit, billet: metric{side: "billet", name: unit}}
	for _, s := range f.sides[1:] {
		line.peers = append(line.peers, metric{side: s.name, name: unit})
	}
	f.cases = []benchCase{line}
	return f
}
