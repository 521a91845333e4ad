package billet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/replication"
)

// syncProducer is what Log.Produce keeps between calls.
type syncProducer struct {
	topics sync.Map // name to *syncTopic
	recent atomic.Pointer[syncTopic]
	calls  sync.Pool // of *syncCall
}

// syncTopic is what is known of a topic at one version of the catalog.
type syncTopic struct {
	name       string
	version    uint64
	maxMessage int
	times      timestampRule
	partitions []partitionLog
	next       *atomic.Uint32 // for records without a key
}

// syncCall is one batch on its way.
type syncCall struct {
	builder batch.Builder
	ready   chan struct{}
	result  appendResult
	done    func(appendResult)
}

func newSyncCall() *syncCall {
	c := &syncCall{ready: make(chan struct{}, 1)}
	c.done = func(r appendResult) {
		c.result = r
		c.ready <- struct{}{}
	}
	return c
}

// The waits between attempts after a refusal that time alone can end.
const (
	syncBackoffMin = time.Millisecond
	syncBackoffMax = 100 * time.Millisecond
)

// Produce writes one record and returns where it went. When it returns nil the
// record is stored by the topic's policy: durable under fsync=commit. It waits
// for a partition that does not take records yet, or is busy, as long as ctx
// allows. Many goroutines in Produce share syncs.
//
// It writes the record once and does not retry when the outcome is unknown: use
// a Producer for retries without duplicates, and for throughput.
//
// Errors: ctx's own, with ErrAmbiguous when the record may have been written;
// ErrUnknownTopic, ErrRecordTooLarge, ErrInvalidRecord, ErrDiskFull,
// ErrAmbiguous, ErrPartitionFailed, ErrQuarantined, ErrClosed.
func (l *Log) Produce(ctx context.Context, record Record) (Offset, error) {
	if err := l.check(ctx); err != nil {
		return Offset{}, err
	}
	t, err := l.syncTopic(record.Topic)
	if err != nil {
		return Offset{}, err
	}
	if err := t.times.check(record.Timestamp); err != nil {
		return Offset{}, fmt.Errorf("billet: produce to topic %q: %w", t.name, err)
	}
	n := 0
	if record.Key != nil {
		n = batch.PartitionForKey(record.Key, len(t.partitions))
	} else if len(t.partitions) > 1 {
		n = t.spread()
	}
	call := l.sync.call()
	call.builder.Reset(batch.BuilderOptions{Capacity: batch.HeaderSize + recordSizeBound(record.Key, record.Value, record.Headers)})
	call.builder.Append(timestampOf(record.Timestamp), record.Key, record.Value, batchHeaders(record.Headers))
	return l.produceCall(ctx, t, int32(n), call)
}

// ProduceBatch writes records to one partition as one batch: all of them or none,
// with consecutive offsets, of which it returns the first. Topic, Partition and
// Offset of the records are ignored. Otherwise it is like Produce; max.message.bytes
// bounds the batch. Without records it does nothing.
func (l *Log) ProduceBatch(ctx context.Context, topic string, partition int32, records []Record) (Offset, error) {
	if err := l.check(ctx); err != nil {
		return Offset{}, err
	}
	t, err := l.syncTopic(topic)
	if err != nil {
		return Offset{}, err
	}
	if partition < 0 || int(partition) >= len(t.partitions) {
		return Offset{}, fmt.Errorf("billet: produce to %s/%d: %w: the topic has partitions 0 to %d",
			topic, partition, ErrUnknownTopic, len(t.partitions)-1)
	}
	if len(records) == 0 {
		return Offset{Partition: partition, Offset: UnknownOffset}, nil
	}
	for i := range records {
		if err := t.times.check(records[i].Timestamp); err != nil {
			return Offset{}, fmt.Errorf("billet: produce to %s/%d: record %d: %w", topic, partition, i, err)
		}
	}
	now := time.Now().UnixMilli()
	call := l.sync.call()
	call.builder.Reset(batch.BuilderOptions{})
	for i := range records {
		r := &records[i]
		call.builder.Append(timestampMillis(r.Timestamp, now), r.Key, r.Value, batchHeaders(r.Headers))
		if call.builder.Size() > t.maxMessage {
			break // refused below
		}
	}
	return l.produceCall(ctx, t, partition, call)
}

func (s *syncProducer) call() *syncCall {
	if c, ok := s.calls.Get().(*syncCall); ok {
		return c
	}
	return newSyncCall()
}

// syncTopic finds a topic.
func (l *Log) syncTopic(name string) (*syncTopic, error) {
	version := l.catalog.Version()
	t := l.sync.recent.Load()
	if t != nil && t.name == name && t.version == version {
		return t, nil
	}
	old, _ := l.sync.topics.Load(name)
	t, _ = old.(*syncTopic)
	if t == nil || t.version != version {
		state, ok := l.catalog.Topic(name)
		if !ok || state.Partitions == 0 {
			l.sync.topics.Delete(name)
			return nil, fmt.Errorf("billet: produce to topic %q: %w: %s", name, ErrUnknownTopic, adviceUnknownTopic)
		}
		next := &atomic.Uint32{}
		if t != nil {
			next = t.next
		}
		t = &syncTopic{name: name, version: version, maxMessage: state.MaxMessage, times: state.Times, next: next}
		for n := range state.Partitions {
			log, err := l.catalog.Partition(name, int32(n))
			if err != nil {
				return nil, fmt.Errorf("billet: produce to %s/%d: %w", name, n, wrapSeam(err))
			}
			t.partitions = append(t.partitions, log)
		}
		l.sync.topics.Store(name, t)
	}
	l.sync.recent.Store(t)
	return t, nil
}

// spread chooses a partition for a record without a key: each in turn, past those
// that do not take records.
func (t *syncTopic) spread() int {
	first := int(t.next.Add(1) % uint32(len(t.partitions)))
	for i := range t.partitions {
		n := (first + i) % len(t.partitions)
		if state, _ := t.partitions[n].State(); takesRecords(state) {
			return n
		}
	}
	return first
}

// produceCall finishes the call's batch, appends it and waits for the answer.
func (l *Log) produceCall(ctx context.Context, t *syncTopic, n int32, call *syncCall) (Offset, error) {
	size := call.builder.Size()
	b, err := call.builder.Finish()
	if err == nil && size > t.maxMessage {
		err = fmt.Errorf("%w: it takes %d bytes, max.message.bytes is %d: %s", ErrRecordTooLarge, size, t.maxMessage, adviceTooLarge)
	}
	if err != nil {
		l.sync.calls.Put(call)
		return Offset{}, fmt.Errorf("billet: produce to %s/%d: %w", t.name, n, wrapSeam(err))
	}
	offset, err, idle := l.appendCall(ctx, t.partitions[n], b, call)
	if idle {
		batch.Release(b)
		l.sync.calls.Put(call)
	}
	if err != nil {
		if _, ok := l.catalog.Topic(t.name); !ok && errors.Is(err, ErrClosed) && !l.closed.Load() {
			err = fmt.Errorf("%w: the topic was deleted: %w", ErrUnknownTopic, err)
		}
		return Offset{}, fmt.Errorf("billet: produce to %s/%d: %w", t.name, n, err)
	}
	return Offset{Partition: n, Offset: offset}, nil
}

// appendCall appends b, again and again while it is refused for a reason that may
// pass. idle is false when an answer may still come.
func (l *Log) appendCall(ctx context.Context, log partitionLog, b batch.Batch, call *syncCall) (
	offset int64, err error, idle bool) {
	options := replication.AppendOptions{Acks: replication.AcksAll}
	for backoff := syncBackoffMin; ; backoff = min(2*backoff, syncBackoffMax) {
		log.Append(b, options, call.done)
		select {
		case <-call.ready:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", ErrAmbiguous, ctx.Err()), false
		}
		if call.result.Err == nil {
			return call.result.Offset, nil, true
		}
		err := wrapSeam(call.result.Err)
		switch {
		case errors.Is(err, ErrAmbiguous):
			return 0, err, true
		case errors.Is(err, ErrNotLeader):
			if err := log.Writable(ctx); err != nil {
				return 0, wrapWait(ctx, err), true
			}
		case !errors.Is(err, ErrBusy):
			return 0, err, true
		}
		if waitErr := sleep(ctx, backoff); waitErr != nil {
			return 0, fmt.Errorf("%w: %w", err, waitErr), true
		}
	}
}

// wrapWait gives the error of a wait its public name, and ctx's when that is why.
func wrapWait(ctx context.Context, err error) error {
	if ctxErr := ctx.Err(); ctxErr != nil && !errors.Is(err, ctxErr) {
		return fmt.Errorf("%w: %w", wrapSeam(err), ctxErr)
	}
	return wrapSeam(err)
}

// sleep waits for d or the end of ctx, whose error it returns.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
