package billet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/billetlog/billet/transport"
)

// delivery counts how often each record came.
type delivery struct {
	mu   sync.Mutex
	seen map[string]int
	more chan struct{} // has a signal after each
}

func newDelivery() *delivery { return &delivery{seen: map[string]int{}, more: make(chan struct{}, 1)} }

func (d *delivery) add(value []byte) {
	d.mu.Lock()
	d.seen[string(value)]++
	d.mu.Unlock()
	signal(d.more)
}

func (d *delivery) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.seen)
}

func (d *delivery) until(t *testing.T, ctx context.Context, n int) {
	t.Helper()
	for d.count() < n {
		select {
		case <-d.more:
		case <-ctx.Done():
			t.Fatalf("%d of %d records came", d.count(), n)
		}
	}
}

// consume hands what a member gets to d until ctx ends.
func consume(t *testing.T, ctx context.Context, c *Consumer, d *delivery) {
	for r, err := range c.Records(ctx) {
		if err == nil {
			d.add(r.Value)
		} else if ctx.Err() == nil && !errors.Is(err, ErrClosed) {
			t.Errorf("poll: %v", err)
			return
		}
	}
}

func produceValues(t *testing.T, ctx context.Context, log *Log, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		if _, err := log.Produce(ctx, Record{Topic: "t", Key: fmt.Append(nil, n), Value: fmt.Append(nil, n)}); err != nil {
			t.Fatal(err)
		}
	}
}

// A consumer of the process and a Kafka client share a group; when one goes the other
// has all.
func TestGroupOfConsumerAndKafkaClient(t *testing.T) {
	log := groupsLog(t, t.TempDir())
	defer closeLog(t, log)
	ctx := within(t)
	if err := log.CreateTopic(ctx, Topic{Name: "t", Partitions: 6}); err != nil {
		t.Fatal(err)
	}
	c, err := log.NewConsumer(ConsumerConfig{Group: "g", Topics: []string{"t"}, CommitInterval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	d := newDelivery()
	polling, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { consume(t, polling, c, d) })
	client := kafkaClient(t, log, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(100*time.Millisecond))
	running.Go(func() {
		for polling.Err() == nil {
			client.PollFetches(polling).EachRecord(func(r *kgo.Record) { d.add(r.Value) })
		}
	})
	eventually(t, "both have three partitions", func(context.Context) bool { return len(c.Assignment()) == 3 })
	produceValues(t, ctx, log, 0, 200)
	d.until(t, ctx, 200)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	produceValues(t, ctx, log, 200, 300)
	d.until(t, ctx, 300)
	stop()
	running.Wait()
}

// Members on all nodes of a cluster go on when the node that coordinates them closes and
// when one is killed; every record comes at least once.
func TestGroupOverNodes(t *testing.T) {
	net := transport.NewMemoryNetwork(1)
	defer func() { _ = net.Close() }()
	base, ctx := t.TempDir(), clusterContext(t)
	open := func(id int32, join ...string) *Log {
		name := fmt.Sprintf("node-%d", id)
		log, err := Open(Config{Dir: filepath.Join(base, name), NodeID: id, JournalBytes: 4 << 20,
			Groups:  Groups{OffsetsPartitions: 3, HeartbeatInterval: 100 * time.Millisecond},
			Cluster: Cluster{Listen: name, Transport: net.Host(name), Join: join}})
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	logs := []*Log{open(1)}
	logs = append(logs, open(2, "node-1"), open(3, "node-1"))
	defer func() {
		for _, l := range logs {
			closeLog(t, l)
		}
	}()
	if err := logs[0].CreateTopic(ctx, Topic{Name: "t", Partitions: 6, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all nodes know the topic", func(context.Context) bool {
		for _, l := range logs {
			if _, ok := l.catalog.Topic("t"); !ok {
				return false
			}
		}
		return true
	})
	d := newDelivery()
	polling, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	members := make([]*Consumer, 3)
	start := func(i int) {
		c, err := logs[i].NewConsumer(ConsumerConfig{Group: "g", Topics: []string{"t"}, CommitInterval: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		members[i] = c
		running.Go(func() { consume(t, polling, c, d) })
	}
	for i := range logs {
		start(i)
	}
	eventually(t, "each has two partitions", func(context.Context) bool {
		for _, c := range members {
			if len(c.Assignment()) != 2 {
				return false
			}
		}
		return true
	})
	produceValues(t, ctx, logs[0], 0, 100)
	d.until(t, ctx, 100)
	for i := range logs { // one after the other, so the coordinator too
		closeLog(t, logs[i])
		produceValues(t, ctx, logs[(i+1)%3], 100*(i+1), 100*(i+2))
		d.until(t, ctx, 100*(i+2))
		logs[i] = open(int32(i+1), fmt.Sprintf("node-%d", (i+1)%3+1))
		start(i)
	}
	stop()
	running.Wait()
}
