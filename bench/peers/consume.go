package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// consume: one consumer reads one partition from its beginning, from page
// cache, in a process that has just opened the log.
func consume(o options) family {
	const record = kib
	l := load{pool: newPool(poolBytes), size: record, feeders: 1, records: o.records(512 << 10)}
	prepareRead, read := rawRead(l.records * record)
	return family{
		name: "consume",
		sides: []*side{
			{name: "pread", prepare: prepareRead, run: read},
			consumeSide("billet", kindBillet, openBillet, shape{Partitions: 1}, l),
			consumeSide("jetstream-consume5000", kindPeer, openJetStream, shape{Partitions: 1}, l),
			consumeSide("jetstream-fetch1000", kindPeer, openJetStream, shape{Partitions: 1, Consume: "fetch"}, l),
		},
		cases: []benchCase{{
			name: "consume-1KiB-pagecache", unit: "MB/s",
			billet: metric{side: "billet", name: "MB/s"},
			limit:  metric{side: "pread", name: "MB/s with crc"},
			peers: []metric{
				{side: "jetstream-consume5000", name: "MB/s"},
				{side: "jetstream-fetch1000", name: "MB/s"},
			},
			extra:  []metric{{side: "pread", name: "MB/s"}},
			fields: "limit_is=pread+crc32c", goals: []goal{peerTimes(5)},
		}},
	}
}

// consumeSide fills a log once and reads all of it in every run.
func consumeSide(name string, k kind, open opener, s shape, l load) *side {
	prepare := func(ctx context.Context, dir string) error {
		log, err := open(ctx, dir, s)
		if err != nil {
			return err
		}
		_, _, err = ingest(ctx, log, l)
		return errors.Join(err, log.Close())
	}
	run := func(ctx context.Context, dir string) (m measures, err error) {
		existing := s
		existing.Existing = true
		log, err := open(ctx, dir, existing)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, log.Close()) }()
		next := int64(0)
		start := time.Now()
		err = log.Consume(ctx, func(value []byte) error {
			if !sameRecord(value, l.pool.record(next, l.size)) {
				return fmt.Errorf("record %d is another than was written there", next)
			}
			if next++; next == l.records {
				return errEnough
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		return throughput(next, l.size, time.Since(start)), nil
	}
	return &side{name: name, kind: k, prepare: prepare, run: run}
}

// sameRecord compares length and both ends: enough to tell any two records of
// the pool apart, and cheap enough not to be what is measured.
func sameRecord(a, b []byte) bool {
	if len(a) != len(b) || len(a) < 16 {
		return false
	}
	end := len(a) - 8
	return binary.NativeEndian.Uint64(a) == binary.NativeEndian.Uint64(b) &&
		binary.NativeEndian.Uint64(a[end:]) == binary.NativeEndian.Uint64(b[end:])
}
