package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/billetlog/billet"
)

// reader reads the topic and checks that the records of each load come in order,
// none twice and none left out.
type reader struct {
	consumed atomic.Int64

	mu struct {
		sync.Mutex
		loads map[string]*[partitions][]int64 // offsets, by the load's name, partition and number
	}
}

func newReader() *reader {
	r := &reader{}
	r.mu.loads = map[string]*[partitions][]int64{}
	return r
}

// run reads until ctx ends, or something is wrong.
func (r *reader) run(ctx context.Context, log *billet.Log) error {
	consumer, err := log.NewConsumer(billet.ConsumerConfig{Topics: []string{topic}})
	if err != nil {
		return err
	}
	defer consumer.Close()
	for {
		records, err := consumer.Poll(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if err := r.take(records); err != nil {
			return err
		}
	}
}

// take checks records and remembers their offsets.
func (r *reader) take(records []billet.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range records {
		if err := r.takeLocked(&records[i]); err != nil {
			return err
		}
	}
	r.consumed.Add(int64(len(records)))
	return nil
}

func (r *reader) takeLocked(record *billet.Record) error {
	digits := bytes.TrimRight(record.Value, "\x00")
	number, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || record.Partition < 0 || record.Partition >= partitions {
		return fmt.Errorf("the record at %s was not written by this program: %.40q", at(record), record.Value)
	}
	seen := r.mu.loads[string(record.Key)]
	if seen == nil {
		seen = &[partitions][]int64{}
		r.mu.loads[string(record.Key)] = seen
	}
	offsets := &seen[record.Partition]
	want := int64(len(*offsets))
	if number != want {
		return fmt.Errorf("record %d of %s was read at %s when it was record %d's turn", number, record.Key, at(record), want)
	}
	if want > 0 && (*offsets)[want-1] >= record.Offset {
		return fmt.Errorf("record %d of %s was read at %s, after offset %d", number, record.Key, at(record), (*offsets)[want-1])
	}
	*offsets = append(*offsets, record.Offset)
	return nil
}

// at tells where a record is.
func at(r *billet.Record) string { return fmt.Sprintf("%d/%d", r.Partition, r.Offset) }

// count tells how many records of a load were read.
func (r *reader) count(name string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seen := r.mu.loads[name]; seen != nil {
		for _, offsets := range seen {
			n += len(offsets)
		}
	}
	return n
}

// compare says how what was read of a load differs from what was acknowledged:
// that must be the same records, at the same offsets.
func (r *reader) compare(name string, acknowledged [partitions][]int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.mu.loads[name]
	if seen == nil {
		seen = &[partitions][]int64{}
	}
	for n, want := range acknowledged {
		got := seen[n]
		if len(got) != len(want) {
			return fmt.Errorf("partition %d: %d records were acknowledged and %d read", n, len(want), len(got))
		}
		for i := range want {
			if got[i] != want[i] {
				return fmt.Errorf("partition %d: record %d was acknowledged at offset %d and read at %d", n, i, want[i], got[i])
			}
		}
	}
	return nil
}
