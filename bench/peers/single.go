package main

import (
	"context"
	"errors"
	"time"
)

// warmRecords go first in every case of single records, unmeasured.
const warmRecords = 200

// singleSide measures one record at a time, each acknowledged before the next.
func singleSide(name string, k kind, open opener, s shape, l load) *side {
	return &side{name: name, kind: k, run: func(ctx context.Context, dir string) (m measures, err error) {
		log, err := open(ctx, dir, s)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, log.Close()) }()
		for i := range warmRecords {
			if err := log.Publish(ctx, 0, l.pool.record(int64(i), l.size)); err != nil {
				return nil, err
			}
		}
		var each latencies
		feeder := l.start()[0]
		for {
			value, ok := feeder.next()
			if !ok {
				return each.measures(), nil
			}
			start := time.Now()
			if err := log.Publish(ctx, 0, value); err != nil {
				return nil, err
			}
			each = append(each, time.Since(start))
		}
	}}
}

// singleProduce: one synchronous record of 1 KiB after the other.
func singleProduce(o options) []family {
	l := load{pool: newPool(poolBytes), size: kib, feeders: 1, duration: o.duration(1500 * time.Millisecond)}
	durable := singleFamily("sync-produce-durable-1KiB", true, l)
	durable.sides = append([]*side{
		{name: "overwrite", prepare: prepareOverwrite, run: rawWrites(newOverwriter, l, true, 1)},
		{name: "append", run: rawWrites(newAppender, l, true, 1)},
	}, durable.sides...)
	line := &durable.cases[0]
	line.limit, line.extra = metric{side: "overwrite", name: "p50"}, []metric{{side: "append", name: "p50"}}
	line.fields, line.goals = "limit_is=pwrite+fdatasync", []goal{limitAtMost(1.4), peerTimes(1)}

	interval := singleFamily("sync-produce-interval-1KiB", false, l)
	interval.sides = append([]*side{{name: "append", run: rawWrites(newAppender, l, false, 1)}}, interval.sides...)
	line = &interval.cases[0]
	line.limit, line.fields, line.goals = metric{side: "append", name: "p50"}, "limit_is=pwrite", []goal{peerTimes(1)}
	return []family{durable, interval}
}

func singleFamily(name string, durable bool, l load) family {
	s := shape{Partitions: 1, Durable: durable}
	return family{
		name: name,
		sides: []*side{
			singleSide("billet", kindBillet, openBillet, s, l),
			singleSide("jetstream", kindPeer, openJetStream, s, l),
		},
		cases: []benchCase{{
			name: name + "-p50", unit: "us", lowerBetter: true,
			billet: metric{side: "billet", name: "p50"},
			peers:  []metric{{side: "jetstream", name: "p50"}},
		}},
	}
}
