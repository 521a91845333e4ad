package billet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// ledger notes what a log acknowledged, to hold the log against it later. A value names its writer and counts from 0 in it, "writer/n",
// and may have more behind a space; so each is written once at most.
type ledger struct {
	mu    sync.Mutex
	acked map[int32]map[int64]string
	n     int
}

func newLedger() *ledger { return &ledger{acked: map[int32]map[int64]string{}} }

func (g *ledger) ack(partition int32, offset int64, value string) {
	name, _, _ := strings.Cut(value, " ")
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.acked[partition]
	if m == nil {
		m = map[int64]string{}
		g.acked[partition] = m
	}
	m[offset] = name
	g.n++
}

func (g *ledger) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

// check reads the whole topic: every acknowledged record from the partition's start on is where it was said to be, none is there twice, and
// each writer's are in order.
func (g *ledger) check(ctx context.Context, t testing.TB, l *Log, topic string) (records int) {
	t.Helper()
	info, err := l.Topic(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	last := map[string]int{} // by writer
	for _, part := range info.Partitions {
		acked := g.acked[part.Partition]
		p, err := l.Partition(ctx, topic, part.Partition)
		if err != nil {
			t.Fatal(err)
		}
		start, high := p.StartOffset(), p.HighWatermark()
		for next := start; next < high; {
			got, err := p.Read(ctx, next, 1<<20)
			var out *OffsetError
			if errors.As(err, &out) && out.Start > next {
				next = out.Start // retention went on meanwhile
				continue
			}
			if err != nil || len(got) == 0 {
				t.Fatalf("read %s/%d at %d of %d: %d records, %v", topic, part.Partition, next, high, len(got), err)
			}
			for i := range got {
				name, _, _ := strings.Cut(string(got[i].Value), " ")
				if got[i].Offset != next {
					t.Fatalf("%s/%d: offset %d where %d was due", topic, part.Partition, got[i].Offset, next)
				}
				if want, ok := acked[next]; ok && name != want {
					t.Fatalf("%s/%d offset %d holds %q, acknowledged was %q", topic, part.Partition, next, name, want)
				}
				writer, count, _ := strings.Cut(name, "/")
				n, err := strconv.Atoi(count)
				if err != nil {
					t.Fatalf("%s/%d offset %d holds %q", topic, part.Partition, next, name)
				}
				if before, seen := last[writer]; seen && n <= before {
					t.Fatalf("%s/%d offset %d holds %s after %s/%d", topic, part.Partition, next, name, writer, before)
				}
				last[writer] = n
				next++
				records++
			}
		}
		for offset, name := range acked {
			if offset >= high {
				t.Fatalf("%s/%d: %s was acknowledged at %d and the log ends at %d", topic, part.Partition, name, offset, high)
			}
		}
	}
	return records
}

// ledgerValue is the n-th value of a writer, of size bytes at least.
func ledgerValue(writer string, n, size int) []byte {
	v := fmt.Appendf(nil, "%s/%d ", writer, n)
	for i := 0; len(v) < size; i++ {
		v = append(v, byte('a'+(i*7+n)%26))
	}
	return v
}
