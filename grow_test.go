package billet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/billetlog/billet/transport"
)

// segmentFiles lists a node's segments with what tells a file from a copy of it.
func segmentFiles(t *testing.T, dir string) map[string]os.FileInfo {
	t.Helper()
	out := map[string]os.FileInfo{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".log") {
			out[path], err = d.Info()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// eventually waits for what other nodes bring about.
func eventually(t *testing.T, what string, holds func(ctx context.Context) bool) {
	t.Helper()
	ctx := clusterContext(t)
	for !holds(ctx) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s: it does not come about", what)
		}
	}
}

// onNodes says whether every partition of the topic has replicas in sync on exactly the nodes.
func onNodes(t *testing.T, l *Log, topic string, nodes ...int32) bool {
	t.Helper()
	info, err := l.Topic(clusterContext(t), topic)
	if err != nil {
		return false
	}
	for _, p := range info.Partitions {
		in := map[int32]bool{}
		for _, r := range p.Replicas {
			in[r.Node] = r.InSync
		}
		if len(in) != len(nodes) {
			return false
		}
		for _, n := range nodes {
			if !in[n] {
				return false
			}
		}
	}
	return true
}

// A log that was alone becomes the first of three without a byte of it moving, its topic gets three replicas while it is written to, and in the end
// the first node leaves.
func TestGrowToThreeAndLeave(t *testing.T) {
	net := transport.NewMemoryNetwork(1)
	defer func() { _ = net.Close() }()
	base, ctx := t.TempDir(), clusterContext(t)
	config := func(id int32, join ...string) Config {
		name := fmt.Sprintf("node-%d", id)
		return Config{Dir: filepath.Join(base, name), NodeID: id, JournalBytes: 4 << 20,
			Cluster: Cluster{Listen: name, Transport: net.Host(name), Join: join}}
	}
	alone := config(1)
	alone.Cluster = Cluster{}
	one, err := Open(alone)
	if err != nil {
		t.Fatal(err)
	}
	if err := one.CreateTopic(ctx, Topic{Name: "t", Partitions: 2, Config: map[string]string{"segment.bytes": "1048576"}}); err != nil {
		t.Fatal(err)
	}
	sent := 0
	produce := func(l *Log, n int) {
		t.Helper()
		p, err := l.NewProducer(ProducerConfig{Partitioner: ManualPartitioner}) // sends again what a change of leaders leaves open
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			v := fmt.Sprintf("%06d %s", sent, strings.Repeat("x", 4000))
			if _, err := p.ProduceSync(ctx, Record{Topic: "t", Partition: int32(sent % 2), Value: []byte(v)}); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	produce(one, 600)
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	before := segmentFiles(t, alone.Dir)

	logs := make([]*Log, 3)
	for i := range logs {
		c := config(int32(i + 1))
		if i > 0 {
			c.Cluster.Join = []string{"node-1"}
		}
		if logs[i], err = Open(c); err != nil {
			t.Fatal(err)
		}
	}
	for path, was := range before {
		now, err := os.Stat(path)
		if err != nil || !os.SameFile(was, now) {
			t.Errorf("%s was moved or written anew: %v", path, err)
		}
	}
	if err := logs[1].AlterTopic(ctx, "t", Alter{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	produce(logs[2], 100)
	eventually(t, "three replicas", func(context.Context) bool { return onNodes(t, logs[0], "t", 1, 2, 3) })
	readWhole(t, logs[2], "t", true, sent)
	if m := logs[0].Metrics().Cluster; m.Nodes != 3 || m.Reachable != 3 || m.BytesSent == 0 {
		t.Errorf("%+v", m)
	}

	if err := logs[1].DrainNode(ctx, 1); !errors.Is(err, ErrNotEnoughNodes) {
		t.Errorf("three replicas on two nodes: %v", err)
	}
	if err := logs[1].AlterTopic(ctx, "t", Alter{Replicas: 2}); err != nil {
		t.Fatal(err)
	}
	if err := logs[1].DrainNode(ctx, 1); err != nil {
		t.Fatal(err)
	}
	produce(logs[2], 100)
	eventually(t, "node 1 is empty", func(ctx context.Context) bool {
		nodes, err := logs[1].Nodes(ctx)
		return err == nil && nodes[0].Drained && onNodes(t, logs[1], "t", 2, 3)
	})
	if err := logs[2].RemoveNode(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := logs[0].Close(); err != nil {
		t.Error(err)
	}
	produce(logs[1], 10)
	readWhole(t, logs[2], "t", false, sent)
	if err := errors.Join(logs[2].Close(), logs[1].Close()); err != nil {
		t.Error(err)
	}
}
