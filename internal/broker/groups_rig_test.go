package broker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/group"
	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/transport/kafka"
)

// testLog is a replica in memory that behaves as package replication says.
type testLog struct {
	mu        sync.Mutex
	epoch     int32
	batches   []batch.Batch
	start     int64
	end       int64
	appends   int               // that were asked for
	fault     func(n int) error // of the n-th append, from 0; nil: none
	kept      bool              // what fails with ErrAmbiguous is in the log
	subs      map[chan<- struct{}]bool
	suspected []int64
	held      chan func(replication.AppendResult) // unless nil, those who wait for an answer
	reading   chan struct{}                       // unless nil a read waits for it to be closed
}

func newTestLog() *testLog {
	return &testLog{epoch: 1, subs: map[chan<- struct{}]bool{}}
}

func (l *testLog) Epoch() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

func (l *testLog) StartOffset() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start
}

func (l *testLog) Trim(_ context.Context, before int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start = max(l.start, before)
	return nil
}

func (l *testLog) HighWatermark() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

func (l *testLog) Suspect(offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suspected = append(l.suspected, offset)
}

func (l *testLog) Notify(ch chan<- struct{}) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs[ch] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.subs, ch)
	}
}

// lead changes the epoch; 0 is another node's.
func (l *testLog) lead(epoch int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch = epoch
	for ch := range l.subs {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (l *testLog) Append(b batch.Batch, o replication.AppendOptions, done func(replication.AppendResult)) {
	l.mu.Lock()
	n := l.appends
	l.appends++
	var err error
	if l.fault != nil {
		err = l.fault(n)
	}
	if o.Epoch != 0 && o.Epoch != l.epoch {
		err = replication.ErrNotLeader
	}
	ambiguous := err == replication.ErrAmbiguous
	if err == nil || ambiguous && l.kept {
		stored := slices.Clone(b)
		stored.SetBaseOffset(l.end)
		l.batches = append(l.batches, stored)
		l.end = stored.NextOffset()
	}
	if l.held != nil && err == nil {
		l.held <- done
		l.mu.Unlock()
		return
	}
	if err != nil && !ambiguous {
		l.mu.Unlock()
		done(replication.AppendResult{Offset: -1, Err: err})
		return
	}
	l.mu.Unlock()
	go done(replication.AppendResult{Err: err})
}

func (l *testLog) NewCursor() offsetsCursor { return (*testCursor)(l) }

type testCursor testLog

func (c *testCursor) Close() {}

func (c *testCursor) Read(dst []byte, offset int64, maxBytes int) ([]byte, error) {
	c.mu.Lock()
	wait := c.reading
	c.mu.Unlock()
	if wait != nil {
		<-wait
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	first, _ := slices.BinarySearchFunc(c.batches, offset, func(b batch.Batch, at int64) int { return cmp.Compare(b.NextOffset(), at+1) })
	for _, b := range c.batches[first:] {
		if n > 0 && n+len(b) > maxBytes {
			break
		}
		if b.NextOffset() > offset && (n == 0 || n+len(b) <= maxBytes) {
			dst = append(dst, b...)
			n += len(b)
		}
	}
	return dst, nil
}

// testTopics is a catalog.
type testTopics struct {
	mu      sync.Mutex
	topics  []replication.TopicState
	changed chan struct{}
}

func (c *testTopics) Topics() []replication.TopicState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.topics)
}

func (c *testTopics) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *testTopics) set(topics ...replication.TopicState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topics = topics
	close(c.changed)
	c.changed = make(chan struct{})
}

func testTopic(name string, id byte, partitions int) replication.TopicState {
	return replication.TopicState{Name: name, ID: [16]byte{id}, Partitions: make([]replication.PartitionAssignment, partitions)}
}

// coordinatorRig is one coordinator on a testLog.
type coordinatorRig struct {
	*coordinator
	t      testing.TB
	log    *testLog
	topics *testTopics
	ahead  *atomic.Int64 // of the machine's clock
	stop   func()
}

func newCoordinatorRig(t testing.TB, log *testLog, topics *testTopics) *coordinatorRig {
	if topics == nil {
		topics = &testTopics{changed: make(chan struct{})}
		topics.set(testTopic("t", 1, 8))
	}
	ahead := &atomic.Int64{}
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	env := &environment{now: now, logger: slog.New(slog.DiscardHandler), topics: newTopicsView(topics), tidyMin: 200, tidyInterval: time.Nanosecond,
		options: group.Options{NewID: randomID, InitialRebalanceDelay: -1}}
	r := &coordinatorRig{coordinator: newCoordinator(env, 0, log), t: t, log: log, topics: topics, ahead: ahead}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.serve(ctx)
	}()
	r.stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(r.stop)
	return r
}

// insist asks until the coordinator answers, as clients do.
func (r *coordinatorRig) insist(q kmsg.Request) kmsg.Response {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	answer, err := again(ctx, func() (kmsg.Response, error) {
		a := r.ask(ctx, kafka.Client{ID: "test"}, q)
		if code := codeOf(a); isPassing(code) {
			return nil, fmt.Errorf("%w: code %d", errNotNow, code)
		}
		return a, nil
	})
	if err != nil {
		r.t.Fatalf("%T: %v", q, err)
	}
	return answer
}

func commitRequest(name, topic string, partition int32, offset int64) *kmsg.OffsetCommitRequest {
	q := kmsg.NewPtrOffsetCommitRequest()
	q.Version, q.Group, q.Generation = 8, name, -1
	one := kmsg.NewOffsetCommitRequestTopic()
	one.Topic = topic
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = partition, offset
	one.Partitions = append(one.Partitions, p)
	q.Topics = append(q.Topics, one)
	return q
}

// offset is what a group has committed; -1 when it has not.
func (r *coordinatorRig) offset(name, topic string, partition int32) int64 {
	r.t.Helper()
	q := kmsg.NewPtrOffsetFetchRequest()
	q.Version = 8
	asked := kmsg.NewOffsetFetchRequestGroup()
	asked.Group = name
	one := kmsg.NewOffsetFetchRequestGroupTopic()
	one.Topic, one.Partitions = topic, []int32{partition}
	asked.Topics = append(asked.Topics, one)
	q.Groups = append(q.Groups, asked)
	answer := r.insist(q).(*kmsg.OffsetFetchResponse).Groups[0]
	if answer.ErrorCode != 0 {
		r.t.Fatalf("offsets of %s: code %d", name, answer.ErrorCode)
	}
	return answer.Topics[0].Partitions[0].Offset
}
