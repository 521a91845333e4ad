package billet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/billetlog/billet/transport"
)

// logCluster is some nodes over a network in memory.
type logCluster struct {
	t    testing.TB
	net  *transport.MemoryNetwork
	logs []*Log
}

func newLogCluster(t testing.TB, nodes int) *logCluster {
	c := &logCluster{t: t, net: transport.NewMemoryNetwork(1)}
	t.Cleanup(func() { _ = c.net.Close() })
	name := func(i int) string { return fmt.Sprintf("node-%d", i+1) }
	var names []string
	var ids []int32
	for i := range nodes {
		names, ids = append(names, name(i)), append(ids, int32(i+1))
	}
	c.logs = make([]*Log, nodes)
	errs := make([]error, nodes)
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() {
			c.logs[i], errs[i] = Open(Config{Dir: filepath.Join(dir, names[i]), NodeID: ids[i], JournalBytes: 4 << 20,
				Cluster: Cluster{Listen: names[i], Transport: c.net.Host(names[i]), Join: names, Bootstrap: ids}})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

// close closes the nodes, the last one first.
func (c *logCluster) close() {
	for i := len(c.logs) - 1; i >= 0; i-- {
		if err := c.logs[i].Close(); err != nil {
			c.t.Errorf("close node %d: %v", i+1, err)
		}
	}
	c.logs = nil
}

func clusterContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// mustProduce writes one record by a producer, which sends again what a change of leaders leaves open.
func mustProduce(t testing.TB, l *Log, r Record) {
	t.Helper()
	p, err := l.NewProducer(ProducerConfig{})
	if err == nil {
		_, err = p.ProduceSync(clusterContext(t), r)
		err = errors.Join(err, p.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// awaitTopic waits until a node has read of a topic.
func awaitTopic(t testing.TB, l *Log, name string) {
	t.Helper()
	ch := make(chan struct{}, 1)
	defer l.catalog.Notify(ch)()
	ctx := clusterContext(t)
	for {
		if _, ok := l.catalog.Topic(name); ok {
			return
		}
		select {
		case <-ch:
		case <-ctx.Done():
			t.Fatalf("node %d does not hear of topic %q", l.config.NodeID, name)
		}
	}
}

// Producers and consumers work on every node, with a replica or without one.
func TestClusterFromEveryNode(t *testing.T) {
	c := newLogCluster(t, 3)
	ctx := clusterContext(t)
	const topic, replicas = "orders", 3
	if err := c.logs[1].CreateTopic(ctx, Topic{Name: topic, Partitions: 3, Replicas: replicas}); err != nil {
		t.Fatal(err)
	}
	const each = 100
	for i, l := range c.logs {
		awaitTopic(t, l, topic)
		p, err := l.NewProducer(ProducerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		for n := range each {
			key := fmt.Appendf(nil, "k%d", n%17)
			if err := p.Produce(ctx, Record{Topic: topic, Key: key, Value: fmt.Appendf(nil, "%d-%d", i, n)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		mustProduce(t, l, Record{Topic: topic, Value: []byte("one")})
	}
	for i, l := range c.logs {
		for _, local := range []bool{false, true} {
			readWhole(t, l, topic, local, 3*(each+1))
		}
		info, err := l.Topic(ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for _, p := range info.Partitions {
			total += p.HighWatermark
			if p.Leader < 1 || p.LeaderEpoch < 1 || len(p.Replicas) != replicas || p.State != StateLeader && p.State != StateFollower {
				t.Errorf("node %d: %+v", i+1, p)
			}
		}
		if total != 3*(each+1) {
			t.Errorf("node %d says that there are %d records", i+1, total)
		}
		p, err := l.Partition(ctx, topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		if records, err := p.Read(ctx, 0, 10); err != nil || len(records) != 10 {
			t.Errorf("node %d reads %d records, %v", i+1, len(records), err)
		}
		if high := p.HighWatermark(); high != info.Partitions[0].HighWatermark {
			t.Errorf("node %d: high watermark %d, want %d", i+1, high, info.Partitions[0].HighWatermark)
		}
		if at, err := p.OffsetForTime(ctx, time.Unix(0, 0)); at != 0 || err != nil {
			t.Errorf("node %d: offset for the earliest time is %d, %v", i+1, at, err)
		}
	}
}

// readWhole reads so many records, each once and each node's in order within a partition.
func readWhole(t testing.TB, l *Log, topic string, local bool, want int) {
	t.Helper()
	ctx := clusterContext(t)
	consumer, err := l.NewConsumer(ConsumerConfig{Topics: []string{topic}, ReadLocal: local})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = consumer.Close() }()
	last := map[string]int{}
	for n := 0; n < want; {
		records, err := consumer.Poll(ctx)
		if err != nil {
			t.Fatalf("node %d, local %v: %d of %d records: %v", l.config.NodeID, local, n, want, err)
		}
		n += len(records)
		for _, r := range records {
			var node, number int
			if _, err := fmt.Sscanf(string(r.Value), "%d-%d", &node, &number); err != nil {
				continue
			}
			from := fmt.Sprint(r.Partition, "/", node)
			if before, ok := last[from]; ok && number <= before {
				t.Fatalf("node %d: %q after %d in %s/%d", l.config.NodeID, r.Value, before, topic, r.Partition)
			}
			last[from] = number
		}
	}
}
