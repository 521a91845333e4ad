package billet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet/replication"
)

// Producer gathers records into batches, one open batch for each partition, and
// sends them to the log. It is idempotent unless its config says otherwise:
// retries never write a record twice nor change the order of a partition's
// records. It is safe for concurrent use. Make one with Log.NewProducer and Close
// it.
type Producer struct {
	config  ProducerConfig
	options replication.AppendOptions
	catalog catalog
	release func(*Producer) // takes it off the Log's list

	start  time.Time // what nanoseconds count from
	budget memoryBudget
	sender sender
	calls  dispatcher
	pool   sync.Pool // of *pendingBatch
	waits  sync.Pool // of *waiter

	// undelivered counts finished batches whose callbacks have not run.
	undelivered atomic.Int64
	// recent is the topic used last, topics is all of them.
	recent atomic.Pointer[producerTopic]
	topics sync.Map // name to *producerTopic
	closed atomic.Bool
	// stopped is closed when Close or abort has done its work.
	stopped chan struct{}
	// life ends when the producer is closed; it bounds background calls.
	life    context.Context
	endLife context.CancelFunc

	mu struct {
		sync.Mutex
		// all has every partition that may hold a record.
		all      []*producerPartition
		identity producerIdentity
	}

	// unheard counts failed records that had no callback, since the last Flush.
	unheard struct {
		sync.Mutex
		records int
		err     error // the first one's
	}
}

// newProducer starts a producer. release is called once when it is closed.
func newProducer(cat catalog, config ProducerConfig, release func(*Producer)) (*Producer, error) {
	config.EnsureDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	p := &Producer{config: config, catalog: cat, release: release,
		start: time.Now(), stopped: make(chan struct{})}
	p.life, p.endLife = context.WithCancel(context.Background())
	p.options = replication.AppendOptions{Acks: replicationAcks(config.Acks)}
	p.budget.limit = config.BufferBytes
	p.mu.identity = noIdentity
	p.pool.New = func() any { return newPendingBatch() }
	p.sender.init(p)
	p.calls.init(p)
	go p.sender.run()
	go p.calls.run()
	return p, nil
}

// now returns monotonic nanoseconds since the producer was made, at least 1.
func (p *Producer) now() int64 { return int64(time.Since(p.start)) + 1 }

// Produce takes a copy of the record and returns; done, which may be nil, is
// called with the result, exactly once if Produce returned nil and never if it
// returned an error. Calls of done come from one goroutine of the Producer, in
// order within a partition. done should be quick: while it runs, no other one
// does. It must not call Flush or Close, and Produce only with FailFast.
//
// Records that fail without a done are reported by the next Flush.
//
// Produce waits only for room in the buffer, and for the producer's identity with
// the first record of a topic. Errors: ctx's own; ErrBufferFull with FailFast;
// ErrUnknownTopic; ErrRecordTooLarge; ErrInvalidRecord; ErrClosed. done also gets
// ErrTimeout, ErrAmbiguous, ErrOutOfOrderSequence, ErrPartitionFailed,
// ErrQuarantined, and errors of the other kinds for what changed in between.
func (p *Producer) Produce(ctx context.Context, record Record, done func(Offset, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	partition, err := p.partitionFor(ctx, &record)
	if err != nil {
		return err
	}
	return partition.add(ctx, &record, done, nil)
}

// ProduceSync is Produce that waits for the result. The record's batch is sent at
// once. When ctx ends first the record may still be written: the error then wraps
// ErrAmbiguous besides ctx's own.
func (p *Producer) ProduceSync(ctx context.Context, record Record) (Offset, error) {
	if err := ctx.Err(); err != nil {
		return Offset{}, err
	}
	partition, err := p.partitionFor(ctx, &record)
	if err != nil {
		return Offset{}, err
	}
	w := p.waiter()
	if err := partition.add(ctx, &record, nil, w); err != nil {
		p.waits.Put(w)
		return Offset{}, err
	}
	offset, err, back := w.wait(ctx)
	if back {
		p.waits.Put(w)
		return offset, err
	}
	return Offset{}, fmt.Errorf("billet: produce to %s/%d: %w: %w",
		partition.name, partition.number, ErrAmbiguous, err)
}

// Flush sends what is buffered and waits until every record that was produced
// before the call has its result and its callback has returned. It must not be
// called from a callback.
//
// Errors: ctx's own; and when records without a callback failed since the last
// Flush, an error that counts them and wraps the first one's.
func (p *Producer) Flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f := &flushWait{done: make(chan struct{})}
	f.left.Store(1)
	for _, partition := range p.partitions() {
		partition.flush(f)
	}
	f.arrive()
	select {
	case <-f.done:
		return p.takeLost()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close flushes for at most CloseTimeout, fails what is left with ErrClosed, and
// waits for the callbacks. A second Close waits for the first and returns nil.
// It must not be called from a callback.
//
// Errors: those of Flush; ErrClosed with the number of records that were given
// up.
func (p *Producer) Close() error {
	if p.closed.Load() {
		<-p.stopped
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(p.config.CloseTimeout, 0))
	defer cancel()
	err := p.Flush(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // what is left is counted below
	}
	return errors.Join(err, p.shut())
}

// shut fails what is buffered and ends the producer.
func (p *Producer) shut() error {
	if p.closed.Swap(true) {
		<-p.stopped
		return nil
	}
	p.budget.close()
	p.endLife()
	given := 0
	for _, partition := range p.partitions() {
		given += partition.abort()
	}
	p.sender.close()
	p.calls.close()
	err := p.takeLost()
	if p.release != nil {
		p.release(p)
	}
	close(p.stopped)
	if given > 0 {
		return fmt.Errorf("billet: close producer: %d records given up: %w", given, ErrClosed)
	}
	return err
}

// Buffered returns the bytes of memory held by records without a result.
func (p *Producer) Buffered() int64 { return p.budget.usage() }

// partitions returns those that ever got a record.
func (p *Producer) partitions() []*producerPartition {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*producerPartition(nil), p.mu.all...)
}

// noteLost counts records that failed with nobody to tell.
func (p *Producer) noteLost(records int, err error) {
	if records <= 0 {
		return
	}
	u := &p.unheard
	u.Lock()
	defer u.Unlock()
	u.records += records
	if u.err == nil {
		u.err = err
	}
}

// takeLost returns an error about the records that noteLost counted, and begins
// anew.
func (p *Producer) takeLost() error {
	u := &p.unheard
	u.Lock()
	defer u.Unlock()
	n, err := u.records, u.err
	u.records, u.err = 0, nil
	if n == 0 {
		return nil
	}
	return fmt.Errorf("billet: %d records failed, the first one: %w", n, err)
}
