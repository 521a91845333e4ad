package billet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// damageAt changes a byte of a record in a node's segments, below the log's open files.
func (c *logCluster) damageAt(node int32, value string) {
	c.t.Helper()
	var damaged int
	names, err := filepath.Glob(filepath.Join(c.logs[node-1].config.Dir, "partitions", "*", "*", "*.log"))
	for _, name := range names {
		data, readErr := os.ReadFile(name)
		at := bytes.Index(data, []byte(value))
		if err = errors.Join(err, readErr); at < 0 || err != nil {
			continue
		}
		f, openErr := os.OpenFile(name, os.O_RDWR, 0)
		if err = openErr; err == nil {
			_, err = f.WriteAt([]byte{data[at] ^ 1}, int64(at))
			err = errors.Join(err, f.Close())
			damaged++
		}
	}
	if err != nil || damaged != 1 {
		c.t.Fatalf("%d files of %d were damaged: %v", damaged, len(names), err)
	}
}

// replicas are a partition's replica ids by node, as a node knows them.
func (c *logCluster) replicas(at *Log, topic string) map[int32]uint64 {
	out := map[int32]uint64{}
	for _, t := range at.harnessNode().Controller.Topics() {
		if t.Name == topic {
			for _, r := range t.Partitions[0].Replicas {
				out[r.Node] = r.Replica
			}
		}
	}
	return out
}

// A reader that finds a bad checksum has the replica looked at that gave the bytes, here or on another node, and that is replaced: nobody else would
// come by for minutes.
func TestReaderHealsReplica(t *testing.T) {
	const records, bad = 30, 7
	value := func(i int) string { return fmt.Sprintf("value number %d.", i) }
	for _, how := range []string{"local", "leader", "elsewhere", "partition"} {
		t.Run(how, func(t *testing.T) {
			c := newLogCluster(t, 4)
			ctx := clusterContext(t)
			if err := c.logs[0].CreateTopic(ctx, Topic{Name: "t", Partitions: 1, Replicas: 3}); err != nil {
				t.Fatal(err)
			}
			for i := range records {
				mustProduce(t, c.logs[0], Record{Topic: "t", Value: []byte(value(i))})
			}
			info, err := c.logs[0].Topic(ctx, "t")
			if err != nil {
				t.Fatal(err)
			}
			before := c.replicas(c.logs[0], "t")
			damaged, reader := info.Partitions[0].Leader, info.Partitions[0].Leader
			for id := int32(1); id <= 4; id++ {
				switch {
				case how == "local" && before[id] != 0 && id != info.Partitions[0].Leader:
					damaged, reader = id, id
				case how == "elsewhere" && before[id] == 0:
					reader = id
				}
			}
			l := c.logs[reader-1]
			awaitTopic(t, l, "t")
			if how == "local" {
				readWhole(t, l, "t", true, records) // it is there
			}
			c.damageAt(damaged, value(bad))
			if how == "partition" {
				p, err := l.Partition(ctx, "t", 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.Read(ctx, 0, records); !errors.Is(err, ErrCorrupt) {
					t.Fatalf("the damage shows as %v", err)
				}
			} else {
				readPast(t, l, how == "local", records)
			}
			eventually(t, "the replica is replaced", func(context.Context) bool {
				now := c.replicas(l, "t")
				return len(now) == 3 && now[damaged] != 0 && now[damaged] != before[damaged] && onNodes(t, l, "t", slices.Collect(maps.Keys(now))...)
			})
			if n := c.logs[damaged-1].Metrics().DamagedReplicas; n != 1 {
				t.Errorf("node %d found damage in %d replicas", damaged, n)
			}
			for _, l := range c.logs {
				readWhole(t, l, "t", true, records)
			}
		})
	}
}

// readPast reads so many records, again and again from the damage on, as one does who takes errors for passing.
func readPast(t *testing.T, l *Log, local bool, records int64) {
	t.Helper()
	ctx := clusterContext(t)
	consumer, err := l.NewConsumer(ConsumerConfig{Topics: []string{"t"}, ReadLocal: local})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = consumer.Close() }()
	seen := 0
	for next := int64(0); next < records; {
		got, err := consumer.Poll(ctx)
		if ctx.Err() != nil {
			t.Fatalf("the reader came to %d of %d: %v", next, records, err)
		}
		for _, r := range got {
			next = r.Offset + 1
		}
		if err != nil {
			if seen++; !errors.Is(err, ErrCorrupt) && seen == 1 {
				t.Fatal(err)
			}
			_ = consumer.Seek("t", 0, next)
		}
	}
	if seen == 0 {
		t.Error("the damage was not seen")
	}
}
