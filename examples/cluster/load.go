package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet"
)

// window bounds the records of one partition that wait for an acknowledgement. So
// a partition without a leader does not hold up the others, as it would if all
// shared one bound.
const window = 256

// load writes numbered records to all partitions of the topic, each from a
// goroutine of its own.
type load struct {
	name  string // the key of all its records
	size  int    // of values, in bytes
	pause time.Duration
	acks  *silence

	written atomic.Int64 // acknowledged records

	mu struct {
		sync.Mutex
		// offsets are those that were acknowledged, by partition and number.
		offsets [partitions][]int64
		err     error // the first failure
	}
}

// newLoad makes a load of so many records a second, 0 for as many as are
// acknowledged. The name must not have been used before.
func newLoad(name string, size, rate int) *load {
	l := &load{name: name, size: size, acks: newSilence()}
	if rate > 0 {
		l.pause = time.Second * partitions / time.Duration(rate)
	}
	return l
}

// run writes until ctx ends, and then waits for all acknowledgements. It returns
// the first failure: a producer retries what can be retried, so each one counts.
func (l *load) run(ctx context.Context, log *billet.Log) error {
	producer, err := log.NewProducer(billet.ProducerConfig{Partitioner: billet.ManualPartitioner})
	if err != nil {
		return err
	}
	var writers sync.WaitGroup
	for n := range int32(partitions) {
		writers.Go(func() { l.fail(l.write(ctx, producer, n)) })
	}
	writers.Wait()
	l.fail(producer.Close()) // flushes
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.err
}

// write fills one partition.
func (l *load) write(ctx context.Context, producer *billet.Producer, n int32) error {
	free := make(chan struct{}, window)
	ticks := newPacer(l.pause)
	record := billet.Record{Topic: topic, Partition: n, Key: []byte(l.name), Value: make([]byte, l.size)}
	for number := int64(0); ; number++ {
		if !ticks.wait(ctx) {
			return nil
		}
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		// Digits, and zero bytes up to the size. Produce has taken a copy when it
		// returns.
		clear(record.Value)
		strconv.AppendInt(record.Value[:0], number, 10)
		err := producer.Produce(ctx, record, func(at billet.Offset, err error) {
			l.done(n, number, at, err)
			<-free
		})
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("record %d of partition %d: %w", number, n, err)
		}
	}
}

// done is called once for each record, in order within a partition.
func (l *load) done(n int32, number int64, at billet.Offset, err error) {
	if err == nil {
		l.acks.heard(n, time.Now())
		l.written.Add(1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	have := int64(len(l.mu.offsets[n]))
	switch {
	case err != nil:
		err = fmt.Errorf("record %d of partition %d was not written: %w", number, n, err)
	case number != have:
		err = fmt.Errorf("partition %d acknowledged its record %d when it was record %d's turn", n, number, have)
	default:
		l.mu.offsets[n] = append(l.mu.offsets[n], at.Offset)
		return
	}
	if l.mu.err == nil {
		l.mu.err = err
	}
}

func (l *load) fail(err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.err = errors.Join(l.mu.err, err)
}

// acknowledged returns the offsets by partition and number, and how many there are.
// The load must have ended.
func (l *load) acknowledged() (offsets [partitions][]int64, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.mu.offsets {
		total += len(o)
	}
	return l.mu.offsets, total
}

// pacer lets pass so many a second, and the others at once when it was held up.
type pacer struct {
	pause time.Duration
	next  time.Time
}

func newPacer(pause time.Duration) *pacer { return &pacer{pause, time.Now()} }

// wait returns false when ctx has ended.
func (p *pacer) wait(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	if p.pause == 0 {
		return true
	}
	p.next = p.next.Add(p.pause)
	ahead := time.Until(p.next)
	if ahead < 10*time.Millisecond {
		return true
	}
	timer := time.NewTimer(ahead)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
