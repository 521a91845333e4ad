package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	endToEndInterval = time.Millisecond // 1,000 records/s
	endToEndWarm     = 300              // records before the measured ones
)

// duplex is both ends of a log, as end to end needs them.
type duplex interface {
	Send(ctx context.Context, value []byte) error
	Sent(ctx context.Context) error
	Consume(ctx context.Context, visit func(value []byte) error) error
	Close() error
}

// endToEnd: records sent at a fixed rate, whatever the system does, to a
// waiting consumer in the same process. A latency is from the call that sends
// to the record's arrival; when an earlier call still blocked at a record's
// time, from that time.
func endToEnd(o options) family {
	payloads := newPool(poolBytes)
	records := int(o.duration(4*time.Second) / endToEndInterval)
	endToEndSide := func(name string, k kind, open func(context.Context, string) (duplex, error)) *side {
		return &side{name: name, kind: k, run: func(ctx context.Context, dir string) (m measures, err error) {
			d, err := open(ctx, dir)
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, d.Close()) }()
			return paced(ctx, d, payloads, records)
		}}
	}
	system := func(open opener) func(context.Context, string) (duplex, error) {
		return func(ctx context.Context, dir string) (duplex, error) { return open(ctx, dir, shape{Partitions: 1}) }
	}
	line := func(quantile string) benchCase {
		return benchCase{
			name: "e2e-1000/s-interval-" + quantile, unit: "us", lowerBetter: true,
			billet: metric{side: "billet", name: quantile},
			limit:  metric{side: "handoff", name: quantile},
			peers:  []metric{{side: "jetstream", name: quantile}},
			fields: "limit_is=pwrite+channel", goals: []goal{peerTimes(1)},
		}
	}
	return family{
		name: "e2e",
		sides: []*side{
			endToEndSide("handoff", kindRaw, func(_ context.Context, dir string) (duplex, error) { return newRawHandoff(dir) }),
			endToEndSide("billet", kindBillet, system(openBillet)),
			endToEndSide("jetstream", kindPeer, system(openJetStream)),
		},
		cases: []benchCase{line("p50"), line("p99")},
	}
}

// paced sends the warm and the measured records and waits for all.
func paced(ctx context.Context, d duplex, payloads pool, records int) (measures, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	base := time.Now()
	total := records + endToEndWarm
	sent := make(chan error, 1)
	go func() { sent <- sendPaced(ctx, d, payloads, base, total) }()
	each := make(latencies, 0, records)
	arrived := 0
	err := d.Consume(ctx, func(value []byte) error {
		now := time.Since(base)
		at, err := checkSent(payloads, value, arrived)
		if err != nil {
			return err
		}
		if arrived >= endToEndWarm {
			each = append(each, now-at)
		}
		if arrived++; arrived == total {
			return errEnough
		}
		return nil
	})
	if err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("record %d: %w", arrived, err), <-sent)
	}
	if err := <-sent; err != nil {
		return nil, err
	}
	return each.measures(), nil
}

func sendPaced(ctx context.Context, d duplex, payloads pool, base time.Time, total int) error {
	time.Sleep(100 * time.Millisecond) // the consumer waits by then
	pace := newPacer(endToEndInterval)
	defer pace.stop()
	for i := range total {
		late := pace.wait()
		value := append([]byte(nil), payloads.record(int64(i), kib)...)
		stamp(value, time.Since(base)-late)
		if err := d.Send(ctx, value); err != nil {
			return fmt.Errorf("send record %d: %w", i, err)
		}
	}
	return d.Sent(ctx)
}

// checkSent checks that value is record i and returns when it was sent.
func checkSent(payloads pool, value []byte, i int) (time.Duration, error) {
	at, err := stamped(value)
	if err != nil {
		return 0, err
	}
	if string(value[8:]) != string(payloads.record(int64(i), kib)[8:]) {
		return 0, errors.New("another record than sent, or out of order")
	}
	return at, nil
}
