package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet"
)

// clusterBytes is what one partition holds on each of its nodes in the cases that
// read or copy it.
const clusterBytes = 256 << 20

// followed: one consumer reads a partition from page cache, on a node that leads
// it and on one that has a replica and reads that.
func followed(o options) family {
	l := load{pool: newPool(poolBytes), size: kib, feeders: clusterNodes, records: o.records(clusterBytes) / kib}
	return family{
		name:  "cluster-consume",
		sides: []*side{{name: "billet", kind: kindBillet, run: followedRun(l)}},
		cases: []benchCase{{
			name: "cluster-consume-local-follower", unit: "MB/s",
			billet: metric{side: "billet", name: "follower"}, limit: metric{side: "billet", name: "leader"},
			fields: "limit_is=local-leader", goals: []goal{limitAtLeast(0.9)},
		}},
	}
}

func followedRun(l load) func(context.Context, string) (measures, error) {
	return func(ctx context.Context, dir string) (m measures, err error) {
		opened, err := openBilletCluster(ctx, dir, shape{Partitions: 1})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, opened.Close()) }()
		c := opened.(*billetCluster)
		l.feeders = c.leaders[0] + 1 // the last of them is the leader's
		total, _, err := ingest(ctx, c, leaderOnly(l))
		if err != nil {
			return nil, err
		}
		m = measures{}
		for i, log := range c.nodes {
			name := "follower"
			if i == c.leaders[0] {
				name = "leader"
			}
			rate, err := readLocal(ctx, log, total)
			if err != nil {
				return nil, fmt.Errorf("node %d: %w", i+1, err)
			}
			m[name] = max(m[name], rate) // the better of two followers, as there is one leader
		}
		return m, nil
	}
}

// readLocal returns in MB/s how fast a consumer reads all records of partition 0
// that this node has.
func readLocal(ctx context.Context, log *billet.Log, total int64) (rate float64, err error) {
	consumer, err := log.NewConsumer(billet.ConsumerConfig{Assign: map[string][]int32{billetTopic: {0}}, ReadLocal: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
	start := time.Now()
	for n := int64(0); n < total; {
		records, err := consumer.Poll(ctx)
		if err != nil {
			return 0, err
		}
		n += int64(len(records))
	}
	return throughput(total, kib, time.Since(start))["MB/s"], nil
}

// catchUp: a third replica of a partition is made while a producer writes to its
// leader as fast as it can: how fast it comes, and what that leaves the producer.
func catchUp(o options) family {
	own := func(name string) metric { return metric{side: "billet", name: name} }
	alone := own("alone")
	share := own("meanwhile")
	share.over = &alone
	return family{
		name: "cluster-catch-up",
		sides: []*side{
			{name: "quiet", kind: kindBillet, run: catchUpRun(o, false)},
			{name: "billet", kind: kindBillet, run: catchUpRun(o, true)},
		},
		cases: []benchCase{
			{name: "cluster-catch-up", unit: "MB/s", billet: own("MB/s"), extra: []metric{{side: "quiet", name: "MB/s"}}, goals: []goal{atLeast(300)}},
			{name: "cluster-catch-up-producer", unit: "factor", billet: share, fields: "of=its-rate-before", goals: []goal{atLeast(0.5)}},
		},
	}
}

func catchUpRun(o options, busy bool) func(context.Context, string) (measures, error) {
	return func(ctx context.Context, dir string) (m measures, err error) {
		c := &billetCluster{shape: shape{Partitions: 1, Replicas: clusterNodes - 1}, nodes: make([]*billet.Log, clusterNodes)}
		done := make(chan billet.Event, clusterNodes)
		c.onEvent = func(e billet.Event) {
			if e.Kind == billet.EventCatchUpDone && e.Topic == billetTopic {
				select {
				case done <- e:
				default:
				}
			}
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		if err := c.open(ctx, dir); err != nil {
			return nil, err
		}
		fill := load{pool: newPool(poolBytes), size: kib, feeders: c.leaders[0] + 1, records: o.records(clusterBytes) / kib}
		if _, _, err := ingest(ctx, c, leaderOnly(fill)); err != nil {
			return nil, err
		}
		m = measures{}
		meanwhile := fill
		if busy {
			timed := fill
			timed.records, timed.duration = 0, o.duration(time.Second)
			records, elapsed, err := ingest(ctx, c, leaderOnly(timed))
			if err != nil {
				return nil, err
			}
			m["alone"] = throughput(records, kib, elapsed)["MB/s"]
			meanwhile.records, meanwhile.duration = 0, time.Minute
		}
		return m, c.copyUnder(ctx, leaderOnly(meanwhile), busy, done, m)
	}
}

// copyUnder adds the third replica, under load if busy, and notes the rates.
func (c *billetCluster) copyUnder(ctx context.Context, l load, busy bool, done <-chan billet.Event, m measures) error {
	var acked atomic.Int64
	ended := make(chan error, 1)
	stop := &atomic.Bool{}
	l.stop = stop
	if busy {
		go func() { ended <- c.Ingest(ctx, l, &acked) }()
	} else {
		ended <- nil
	}
	start := time.Now()
	if err := c.nodes[0].AlterTopic(ctx, billetTopic, billet.Alter{Replicas: clusterNodes}); err != nil {
		return err
	}
	select {
	case e := <-done:
		m["MB/s"] = float64(e.Bytes) / 1e6 / e.Duration.Seconds()
	case <-ctx.Done():
		return fmt.Errorf("no replica was made: %w", ctx.Err())
	}
	if busy {
		m["meanwhile"] = throughput(acked.Load(), kib, time.Since(start))["MB/s"]
	}
	stop.Store(true)
	return <-ended
}
