package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	shardCount    = 64
	shardInFlight = 4
)

// shards: 64 partitions, and in each four callers that write one durable
// record after the other.
func shards(o options) family {
	l := load{pool: newPool(poolBytes), size: kib, feeders: shardCount * shardInFlight, duration: o.duration(2 * time.Second)}
	group := load{pool: l.pool, size: l.feeders * kib, feeders: 1, duration: l.duration}
	openOurs := func(ctx context.Context, dir string) (publisher, error) {
		return openBillet(ctx, dir, shape{Partitions: shardCount, Durable: true})
	}
	openTan := func(ctx context.Context, dir string) (publisher, error) { return openDragonboat(ctx, dir, shardCount) }
	return family{
		name: "64p-4inflight",
		sides: []*side{
			{name: "overwrite", prepare: prepareOverwrite, run: rawWrites(newOverwriter, group, true, l.feeders)},
			shardSide("billet", kindBillet, openOurs, l),
			shardSide("tan", kindPeer, openTan, l),
		},
		cases: []benchCase{{
			name: "64p-4inflight-durable-1KiB", unit: "records/s",
			billet: metric{side: "billet", name: "records/s"},
			limit:  metric{side: "overwrite", name: "records/s"},
			peers:  []metric{{side: "tan", name: "records/s"}},
			fields: "limit_is=256-records-a-fdatasync", goals: []goal{peerTimes(4)},
		}},
	}
}

// shardSide measures a load whose feeder i writes to partition i modulo shardCount.
func shardSide(name string, k kind, open func(context.Context, string) (publisher, error), l load) *side {
	return &side{name: name, kind: k, run: func(ctx context.Context, dir string) (m measures, err error) {
		log, err := open(ctx, dir)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, log.Close()) }()
		for p := range shardCount { // every partition has taken a record before the clock starts
			if err := log.Publish(ctx, p, l.pool.record(0, l.size)); err != nil {
				return nil, err
			}
		}
		feeders := l.start()
		each := make([]latencies, len(feeders))
		errs := make([]error, len(feeders))
		var wg sync.WaitGroup
		start := time.Now()
		for i, f := range feeders {
			wg.Go(func() { each[i], errs[i] = publishAll(ctx, log, i%shardCount, f) })
		}
		wg.Wait()
		elapsed := time.Since(start)
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		var all latencies
		for _, l := range each {
			all = append(all, l...)
		}
		m = all.measures()
		for name, v := range throughput(given(feeders), l.size, elapsed) {
			m[name] = v
		}
		return m, nil
	}}
}

// publishAll writes a feeder's records one after the other.
func publishAll(ctx context.Context, log publisher, partition int, f *feeder) (each latencies, err error) {
	for {
		value, ok := f.next()
		if !ok {
			return each, nil
		}
		start := time.Now()
		if err := log.Publish(ctx, partition, value); err != nil {
			return nil, err
		}
		each = append(each, time.Since(start))
	}
}
