package billet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/segment"
)

// fakeAnswer is what a fakeLog does with one Append.
type fakeAnswer struct {
	store bool  // the batch is written, if its sequence allows
	err   error // the answer; nil is that of a good partition
	hold  bool  // the answer waits for release
}

var (
	answerLost = fakeAnswer{err: replication.ErrAmbiguous}              // unknown, and not there
	answerKept = fakeAnswer{store: true, err: replication.ErrAmbiguous} // unknown, and there
	answerHeld = fakeAnswer{store: true, hold: true}
)

func refuse(err error) fakeAnswer { return fakeAnswer{err: err} }

// fakeLog is a partition in memory with the sequence rules of a real one.
type fakeLog struct {
	null bool // answers at once and keeps nothing

	appends atomic.Int64
	high    atomic.Int64

	mu struct {
		sync.Mutex
		script    []fakeAnswer // for the next Appends
		always    *fakeAnswer  // after the script
		batches   []batch.Batch
		start     int64
		held      []func()
		producers map[int64][]fakeSequence
		state     replication.PartitionState
		cause     error
		changed   chan struct{}
		subs      map[int]chan<- struct{}
		nextSub   int
		readErr   error
		suspected []int64
		sizes     []int // records of each batch appended or refused
	}
}

type fakeSequence struct {
	epoch       int16
	first, last int32
	offset      int64
}

func newFakeLog() *fakeLog {
	f := &fakeLog{}
	f.mu.producers = map[int64][]fakeSequence{}
	f.mu.state = replication.StateLeader
	f.mu.changed = make(chan struct{})
	f.mu.subs = map[int]chan<- struct{}{}
	return f
}

func (f *fakeLog) play(answers ...fakeAnswer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.script = append(f.mu.script, answers...)
}

func (f *fakeLog) playAlways(a *fakeAnswer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.always = a
}

// release gives the answers held back.
func (f *fakeLog) release() {
	f.mu.Lock()
	held := f.mu.held
	f.mu.held = nil
	f.mu.Unlock()
	for _, answer := range held {
		answer()
	}
}

func (f *fakeLog) Append(b batch.Batch, o replication.AppendOptions, done func(replication.AppendResult)) {
	f.appends.Add(1)
	if f.null {
		done(replication.AppendResult{Offset: f.high.Add(int64(b.Count())) - int64(b.Count())})
		return
	}
	f.mu.Lock()
	f.mu.sizes = append(f.mu.sizes, b.Count())
	a := fakeAnswer{store: true}
	if len(f.mu.script) > 0 {
		a = f.mu.script[0]
		f.mu.script = f.mu.script[1:]
	} else if f.mu.always != nil {
		a = *f.mu.always
	}
	r := replication.AppendResult{Offset: -1, Timestamp: -1, Err: a.err}
	if a.store {
		offset, err := f.storeLocked(b)
		if err != nil {
			r.Err = err
		} else if a.err == nil {
			r.Offset = offset
		}
	}
	answer := func() { done(r) }
	if a.hold {
		f.mu.held = append(f.mu.held, answer)
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	answer()
}

// storeLocked writes the batch unless its sequence is wrong or known.
func (f *fakeLog) storeLocked(b batch.Batch) (int64, error) {
	if err := b.Validate(batch.Limits{Strict: true}); err != nil {
		return 0, fmt.Errorf("%w: %w", replication.ErrInvalidBatch, err)
	}
	offset := f.high.Load()
	if id := b.ProducerID(); id >= 0 {
		known := f.mu.producers[id]
		s := fakeSequence{b.ProducerEpoch(), b.BaseSequence(), b.LastSequence(), offset}
		for _, k := range known {
			if k.epoch == s.epoch && k.first == s.first && k.last == s.last {
				return k.offset, nil
			}
		}
		if n := len(known); n > 0 && addSequence(known[n-1].last, 1) != s.first {
			return 0, replication.ErrOutOfOrderSequence
		}
		known = append(known, s)
		f.mu.producers[id] = known[max(0, len(known)-replication.MaxIdempotentInFlight):]
	}
	c := batch.Batch(slices.Clone(b))
	c.SetBaseOffset(offset)
	f.mu.batches = append(f.mu.batches, c)
	f.high.Store(c.NextOffset())
	f.signalLocked()
	return offset, nil
}

func (f *fakeLog) signalLocked() {
	for _, ch := range f.mu.subs {
		signal(ch)
	}
}

func (f *fakeLog) setState(s replication.PartitionState, cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.state, f.mu.cause = s, cause
	close(f.mu.changed)
	f.mu.changed = make(chan struct{})
	f.signalLocked()
}

func (f *fakeLog) Writable(ctx context.Context) error {
	for {
		f.mu.Lock()
		state, cause, changed := f.mu.state, f.mu.cause, f.mu.changed
		f.mu.Unlock()
		switch state {
		case replication.StateLeader:
			return nil
		case replication.StateFailed, replication.StateQuarantined, replication.StateClosed:
			return cause
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", replication.ErrNotLeader, ctx.Err())
		}
	}
}

func (f *fakeLog) StartOffset() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.start
}
func (f *fakeLog) HighWatermark() int64 { return f.high.Load() }
func (f *fakeLog) EndOffset() int64     { return f.high.Load() }
func (f *fakeLog) Size() int64          { return 0 }

func (f *fakeLog) Unsynced() time.Duration { return 0 }
func (f *fakeLog) State() (replication.PartitionState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.state, f.mu.cause
}

func (f *fakeLog) Notify(ch chan<- struct{}) (cancel func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.mu.nextSub
	f.mu.nextSub++
	f.mu.subs[id] = ch
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.mu.subs, id)
	}
}

func (f *fakeLog) subscribers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.mu.subs)
}

func (f *fakeLog) setStart(start int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.start = start
}

func (f *fakeLog) setReadErr(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.readErr = err
}

func (f *fakeLog) NewCursor() cursor { return fakeCursor{f} }

func (f *fakeLog) Current() bool                 { return true }
func (f *fakeLog) Known() bool                   { return true }
func (f *fakeLog) Refresh(context.Context) error { return nil }
func (f *fakeLog) ReadLocal() partitionLog       { return f }
func (f *fakeLog) Info() replication.RouteInfo {
	i := replication.RouteInfo{Start: f.StartOffset(), HighWatermark: f.HighWatermark(), End: f.EndOffset()}
	if i.State, i.Cause = f.State(); i.State == replication.StateLeader {
		i.Leader = 1
	}
	return i
}

func (f *fakeLog) OffsetForTime(_ context.Context, ts int64) (offset, timestamp int64, ok bool, err error) {
	for _, r := range f.records() {
		if r.Timestamp >= ts {
			return r.Offset, r.Timestamp, true, nil
		}
	}
	return 0, 0, false, nil
}

// records decodes all that was stored.
func (f *fakeLog) records() []batch.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []batch.Record
	for _, b := range f.mu.batches {
		records, err := batch.DecodeAll(b, 0)
		if err != nil {
			return nil
		}
		out = append(out, records...)
	}
	return out
}

func (f *fakeLog) values() []string {
	var out []string
	for _, r := range f.records() {
		out = append(out, string(r.Value))
	}
	return out
}

// batchSizes returns how many records each Append had.
func (f *fakeLog) batchSizes() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.mu.sizes)
}

// fill stores a batch of n records of size bytes.
func (f *fakeLog) fill(t testing.TB, n int, value func(i int) []byte, codec batch.Codec) {
	t.Helper()
	var builder batch.Builder
	builder.Reset(batch.BuilderOptions{Codec: codec})
	for i := range n {
		builder.Append(int64(1000+i), nil, value(i), nil)
	}
	b, err := builder.Finish()
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.storeLocked(b); err != nil {
		t.Fatal(err)
	}
}

type fakeCursor struct{ f *fakeLog }

func (c fakeCursor) Wait(context.Context) error { return nil }
func (c fakeCursor) Close()                     {}
func (c fakeCursor) Suspect(offset int64) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.mu.suspected = append(c.f.mu.suspected, offset)
}
func (c fakeCursor) Read(dst []byte, offset int64, maxBytes int) ([]byte, error) {
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.readErr != nil {
		return dst, f.mu.readErr
	}
	if offset < f.mu.start {
		return dst, segment.ErrCompacted
	}
	i := sort.Search(len(f.mu.batches), func(i int) bool { return f.mu.batches[i].NextOffset() > offset })
	for n := 0; i < len(f.mu.batches) && (n == 0 || n+len(f.mu.batches[i]) <= maxBytes); i++ {
		dst = append(dst, f.mu.batches[i]...)
		n += len(f.mu.batches[i])
	}
	return dst, nil
}

// fakeCatalog is topics in memory.
type fakeCatalog struct {
	version atomic.Uint64
	ids     atomic.Int64

	mu struct {
		sync.Mutex
		topics map[string]topicState
		logs   map[string][]*fakeLog
		nextID int
		subs   map[int]chan<- struct{}
		idErr  error
		err    error // of every change
	}
	make func() *fakeLog
}

func newFakeCatalog() *fakeCatalog {
	c := &fakeCatalog{make: newFakeLog}
	c.mu.topics = map[string]topicState{}
	c.mu.logs = map[string][]*fakeLog{}
	c.mu.subs = map[int]chan<- struct{}{}
	c.version.Store(1)
	return c
}

// topic makes a topic and returns its partitions.
func (c *fakeCatalog) topic(name string, partitions, maxMessage int) []*fakeLog {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.nextID++
	t := topicState{ID: fmt.Sprintf("%032x", c.mu.nextID), Name: name, Internal: name == "__internal", Partitions: partitions, MaxMessage: maxMessage}
	c.mu.topics[name] = t
	var logs []*fakeLog
	for range partitions {
		logs = append(logs, c.make())
	}
	c.mu.logs[name] = logs
	c.changedLocked()
	return logs
}

func (c *fakeCatalog) changedLocked() {
	c.version.Add(1)
	for _, ch := range c.mu.subs {
		signal(ch)
	}
}

func (c *fakeCatalog) CreateTopic(ctx context.Context, name string, partitions, replicas int, config map[string]string) error {
	s, err := replication.ParseSettings(config)
	if err != nil {
		return err
	}
	c.mu.Lock()
	err = c.mu.err
	c.mu.Unlock()
	if err != nil {
		return err
	}
	c.topic(name, partitions, s.MaxMessageBytes)
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.mu.topics[name]
	t.Config = config
	c.mu.topics[name] = t
	return nil
}

func (c *fakeCatalog) DeleteTopic(_ context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.mu.topics[name]; !ok {
		return replication.ErrUnknownTopic
	}
	delete(c.mu.topics, name)
	for _, f := range c.mu.logs[name] {
		f.playAlways(&fakeAnswer{err: replication.ErrClosed})
		f.setState(replication.StateClosed, replication.ErrClosed)
	}
	delete(c.mu.logs, name)
	c.changedLocked()
	return nil
}

func (c *fakeCatalog) AlterTopic(_ context.Context, name string, set map[string]string, unset []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.mu.topics[name]
	if !ok {
		return replication.ErrUnknownTopic
	}
	t.Config = maps.Clone(t.Config)
	if t.Config == nil {
		t.Config = map[string]string{}
	}
	for _, k := range unset {
		delete(t.Config, k)
	}
	maps.Copy(t.Config, set)
	s, err := replication.ParseSettings(t.Config)
	if err != nil {
		return err
	}
	t.MaxMessage = s.MaxMessageBytes
	c.mu.topics[name] = t
	c.changedLocked()
	return nil
}

func (c *fakeCatalog) AddPartitions(_ context.Context, name string, total int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.mu.topics[name]
	if !ok {
		return replication.ErrUnknownTopic
	}
	for len(c.mu.logs[name]) < total {
		c.mu.logs[name] = append(c.mu.logs[name], c.make())
	}
	t.Partitions = total
	c.mu.topics[name] = t
	c.changedLocked()
	return nil
}

func (c *fakeCatalog) Topics() []topicState {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []topicState
	for _, name := range slices.Sorted(maps.Keys(c.mu.topics)) {
		out = append(out, c.mu.topics[name])
	}
	return out
}

func (c *fakeCatalog) Topic(name string) (topicState, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.mu.topics[name]
	return t, ok
}

func (c *fakeCatalog) Partition(topic string, n int32) (partitionLog, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	logs := c.mu.logs[topic]
	if n < 0 || int(n) >= len(logs) {
		return nil, replication.ErrUnknownTopic
	}
	return logs[n], nil
}

func (c *fakeCatalog) NewProducerID(ctx context.Context) (id int64, epoch int16, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.idErr != nil {
		return 0, 0, c.mu.idErr
	}
	return c.ids.Add(1), 0, ctx.Err()
}

func (c *fakeCatalog) Version() uint64 { return c.version.Load() }

func (c *fakeCatalog) Notify(ch chan<- struct{}) (cancel func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.nextID++
	id := c.mu.nextID
	c.mu.subs[id] = ch
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.mu.subs, id)
	}
}

type fakeNode struct{ closes atomic.Int64 }

func (*fakeNode) metrics(*Metrics) {}
func (n *fakeNode) Close(context.Context) error {
	n.closes.Add(1)
	return nil
}

// newFakeTestLog returns a Log on the catalog.
func newFakeTestLog(t testing.TB, cat catalog) *Log {
	config := Config{Dir: "fake"}
	config.EnsureDefaults()
	l := newLog(config, cat, newEventQueue(nil, nil), &fakeNode{})
	t.Cleanup(func() { _ = l.Close() })
	return l
}
