package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// shape says how a system is opened.
type shape struct {
	Partitions int
	Durable    bool   // on disk before the answer
	Existing   bool   // the directory and its partitions are there already
	Ingest     string // JetStream's ways to ingest: async (default), fast, atomic
	Consume    string // JetStream's ways to consume: callback (default), fetch
	Replicas   int    // of billet's cluster; 0 is one on each node
	BatchBytes int    // billet's producer batch; 0 is its default
	// ShortWindow gives JetStream's streams a duplicate window of shortWindow.
	ShortWindow bool
}

// opener opens a system in dir with the partitions of the shape.
type opener func(ctx context.Context, dir string, s shape) (system, error)

// publisher is what the cases of single records need.
type publisher interface {
	// Publish writes one record and returns when it is acknowledged. It may be
	// called from several goroutines.
	Publish(ctx context.Context, partition int, value []byte) error
	Close() error
}

// system is one log, open in this process. Its methods take a context of
// sufficient length; the value of a record belongs to the caller again when
// the method returns or, for Ingest and Send, stays untouched for ever.
type system interface {
	publisher
	// Ingest writes the load as fast as it can and returns when every record
	// is acknowledged. acked grows as acknowledgements come in.
	Ingest(ctx context.Context, l load, acked *atomic.Int64) error
	// Count returns how many records all partitions hold.
	Count(ctx context.Context) (int64, error)
	// Consume reads partition 0 from its first record and calls visit for each
	// until it returns errEnough, or another error, which Consume returns.
	Consume(ctx context.Context, visit func(value []byte) error) error
	// Send writes one record to partition 0 without waiting for its
	// acknowledgement; Sent waits for all and returns the first error.
	Send(ctx context.Context, value []byte) error
	Sent(ctx context.Context) error
}

// systems are the openers by the names that child processes know them by.
var systems = map[string]opener{
	"billet":    openBillet,
	"jetstream": openJetStream,
}

// errEnough ends Consume without an error.
var errEnough = errors.New("enough")

// ingest runs the load, checks that the system acknowledged and holds all of
// it, and returns how many records that took how long.
func ingest(ctx context.Context, s system, l load) (records int64, elapsed time.Duration, err error) {
	before, err := s.Count(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("count: %w", err)
	}
	var acked atomic.Int64
	start := time.Now()
	if err := s.Ingest(ctx, l, &acked); err != nil {
		return 0, 0, fmt.Errorf("ingest: %w", err)
	}
	elapsed = time.Since(start)
	after, err := s.Count(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("count: %w", err)
	}
	if after-before != acked.Load() || acked.Load() == 0 {
		return 0, 0, fmt.Errorf("%d records acknowledged, %d held", acked.Load(), after-before)
	}
	return acked.Load(), elapsed, nil
}
