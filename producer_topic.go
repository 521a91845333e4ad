package billet

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/billetlog/billet/internal/batch"
)

// producerTopic is what a Producer knows of a topic at one version of the
// catalog. A new version makes a new one, which keeps the partitions as long as
// the topic is the same.
type producerTopic struct {
	name       string
	id         string
	version    uint64
	partitions []*producerPartition
	shared     *stickyState
	maxMessage int // bytes of a batch
	times      timestampRule
}

// stickyState is what outlives versions of a topic.
type stickyState struct {
	partition atomic.Int32 // where records without a key go

	// How the last batch of such records was closed. The fields are read one by
	// one: what is decided by them need not be exact.
	at      atomic.Int64
	records atomic.Int64
	awaited atomic.Bool
}

func (s *stickyState) close(c closing) {
	s.at.Store(c.at)
	s.records.Store(int64(c.records))
	s.awaited.Store(c.awaited)
}

func (s *stickyState) closing() closing {
	return closing{at: s.at.Load(), records: int(s.records.Load()), awaited: s.awaited.Load()}
}

func newStickyState() *stickyState {
	s := &stickyState{}
	s.at.Store(-earlyInterval)
	return s
}

// producerIdentity is what makes a producer's batches recognisable.
type producerIdentity struct {
	id    int64
	epoch int16
}

var noIdentity = producerIdentity{id: batch.NoProducer, epoch: batch.NoProducer}

// partitionFor chooses the record's partition.
func (p *Producer) partitionFor(ctx context.Context, record *Record) (*producerPartition, error) {
	t := p.recent.Load()
	if t == nil || t.name != record.Topic || t.version != p.catalog.Version() {
		var err error
		if t, err = p.topic(ctx, record.Topic); err != nil {
			return nil, err
		}
	}
	if err := t.times.check(record.Timestamp); err != nil {
		return nil, fmt.Errorf("billet: produce to topic %q: %w", t.name, err)
	}
	switch {
	case p.config.Partitioner == ManualPartitioner:
		n := record.Partition
		if n < 0 || int(n) >= len(t.partitions) {
			return nil, fmt.Errorf("billet: produce to %s/%d: %w: the topic has partitions 0 to %d",
				t.name, n, ErrUnknownTopic, len(t.partitions)-1)
		}
		return t.partitions[n], nil
	case record.Key != nil:
		return t.partitions[batch.PartitionForKey(record.Key, len(t.partitions))], nil
	default:
		return t.partitions[int(t.shared.partition.Load())%len(t.partitions)], nil
	}
}

// topic finds a topic that was not the last one used, or whose version changed.
func (p *Producer) topic(ctx context.Context, name string) (*producerTopic, error) {
	version := p.catalog.Version()
	old, _ := p.topics.Load(name)
	t, _ := old.(*producerTopic)
	if t == nil || t.version != version {
		var err error
		if t, err = p.refreshTopic(ctx, name, version); err != nil {
			return nil, err
		}
	}
	p.recent.Store(t)
	return t, nil
}

// refreshTopic makes the entry for version, from the one before if there is one.
func (p *Producer) refreshTopic(ctx context.Context, name string, version uint64) (*producerTopic, error) {
	if p.closed.Load() {
		return nil, fmt.Errorf("billet: produce to topic %q: %w: make a new Producer", name, ErrClosed)
	}
	state, ok := p.catalog.Topic(name)
	if !ok || state.Partitions == 0 {
		p.forgetTopic(name)
		return nil, fmt.Errorf("billet: produce to topic %q: %w: %s", name, ErrUnknownTopic, adviceUnknownTopic)
	}
	if err := p.ensureIdentity(ctx); err != nil {
		return nil, fmt.Errorf("billet: produce to topic %q: get a producer id: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() { // shut has not seen, or will not see, what is added now
		return nil, fmt.Errorf("billet: produce to topic %q: %w: make a new Producer", name, ErrClosed)
	}
	t := &producerTopic{name: name, id: state.ID, version: version,
		maxMessage: state.MaxMessage, times: state.Times, shared: newStickyState()}
	if old, ok := p.topics.Load(name); ok {
		if o := old.(*producerTopic); o.id == state.ID {
			t.shared = o.shared
			t.partitions = append(t.partitions, o.partitions...)
		} else {
			p.dropIdleLocked(o)
		}
	}
	for n := len(t.partitions); n < state.Partitions; n++ {
		log, err := p.catalog.Partition(name, int32(n))
		if err != nil {
			return nil, fmt.Errorf("billet: produce to %s/%d: %w", name, n, wrapSeam(err))
		}
		partition := newProducerPartition(p, name, int32(n), log, p.mu.identity)
		t.partitions = append(t.partitions, partition)
		p.mu.all = append(p.mu.all, partition)
	}
	for _, partition := range t.partitions {
		partition.setTopic(t)
	}
	if first := t.shared.partition.Load(); !t.partitions[int(first)%len(t.partitions)].usable() {
		t.shared.advance(t.partitions, first)
	}
	p.topics.Store(name, t)
	return t, nil
}

// forgetTopic drops a topic that is no more.
func (p *Producer) forgetTopic(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, ok := p.topics.LoadAndDelete(name); ok {
		p.dropIdleLocked(old.(*producerTopic))
	}
}

// dropIdleLocked forgets partitions of a deleted topic that hold no record.
func (p *Producer) dropIdleLocked(t *producerTopic) {
	p.mu.all = slices.DeleteFunc(p.mu.all, func(partition *producerPartition) bool {
		return slices.Contains(t.partitions, partition) && partition.retire()
	})
}

// ensureIdentity gets the producer's id if it needs one and has none.
func (p *Producer) ensureIdentity(ctx context.Context) error {
	if p.config.DisableIdempotence {
		return nil
	}
	p.mu.Lock()
	have := p.mu.identity != noIdentity
	p.mu.Unlock()
	if have {
		return nil
	}
	id, epoch, err := p.catalog.NewProducerID(ctx)
	if err != nil {
		return wrapSeam(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.identity == noIdentity {
		p.mu.identity = producerIdentity{id: id, epoch: epoch}
	}
	return nil
}

// advance moves records without a key off the partition, if that is where they
// go, to the next one that takes records at present.
func (s *stickyState) advance(partitions []*producerPartition, from int32) {
	if len(partitions) < 2 || s.partition.Load() != from {
		return
	}
	next := from
	for range partitions {
		next = (next + 1) % int32(len(partitions))
		if next == from || partitions[next].usable() {
			break
		}
	}
	if next == from { // no other one is usable
		if partitions[from].usable() {
			return
		}
		next = (from + 1) % int32(len(partitions))
	}
	s.partition.CompareAndSwap(from, next)
}
