package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet"
)

const (
	// pollWait is how long the consumer waits before it looks whether all was
	// read.
	pollWait = 50 * time.Millisecond
	// idleMax is how long nothing may come after everything was acknowledged.
	idleMax = 30 * time.Second
)

// reading consumes the topic and compares every record with the source.
type reading struct {
	source   source
	progress *progress
	// expected is the number of records to come, or -1 while that is open.
	expected atomic.Int64

	next           []int64 // offset of each partition's next record
	end            []int64 // where to stop in each partition; nil while that is open
	open           map[string]*comparison
	files          int
	records, bytes int64
}

// comparison follows one file.
type comparison struct {
	lines  int64 // seen so far
	file   io.ReadCloser
	reader lineReader
	hash   lineHash // of the lines seen, if file is nil
}

func newReading(src source, begin []int64, p *progress) *reading {
	r := &reading{source: src, progress: p, next: append([]int64(nil), begin...), open: map[string]*comparison{}}
	r.expected.Store(-1)
	return r
}

// expect says how many records there are in all. Any goroutine may call it.
func (r *reading) expect(records int64) { r.expected.Store(records) }

// run reads from where the run began until all expected records were seen.
func (r *reading) run(ctx context.Context, log *billet.Log) (err error) {
	assign := map[string][]int32{}
	for n := range r.next {
		assign[topic] = append(assign[topic], int32(n))
	}
	consumer, err := log.NewConsumer(billet.ConsumerConfig{Assign: assign})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, consumer.Close())
		for _, c := range r.open {
			if c.file != nil {
				err = errors.Join(err, c.file.Close())
			}
		}
	}()
	for n, offset := range r.next {
		if err := consumer.Seek(topic, int32(n), offset); err != nil {
			return err
		}
	}
	last := time.Now() // when something came
	for r.records != r.expected.Load() {
		records, err := poll(ctx, consumer)
		if err != nil {
			return err
		}
		if len(records) > 0 {
			last = time.Now()
		} else if n := r.expected.Load(); n >= 0 && time.Since(last) > idleMax {
			return fmt.Errorf("only %d of %d records were there to read", r.records, n)
		}
		for i := range records {
			if r.end != nil && records[i].Offset >= r.end[records[i].Partition] {
				continue // written after the run's lines
			}
			if err := r.check(&records[i]); err != nil {
				return err
			}
		}
		r.progress.verified.Store(r.records)
	}
	return r.finish()
}

// poll is Consumer.Poll that gives up after pollWait, with no records.
func poll(ctx context.Context, consumer *billet.Consumer) ([]billet.Record, error) {
	short, cancel := context.WithTimeout(ctx, pollWait)
	defer cancel()
	records, err := consumer.Poll(short)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, nil
	}
	return records, err
}

// check compares a record with the next line of its file.
func (r *reading) check(record *billet.Record) error {
	if want := r.next[record.Partition]; record.Offset != want {
		return fmt.Errorf("partition %d gave offset %d, want %d", record.Partition, record.Offset, want)
	}
	r.next[record.Partition]++
	c := r.open[string(record.Key)]
	if c == nil {
		var err error
		if c, err = r.begin(string(record.Key)); err != nil {
			return err
		}
	}
	c.lines++
	place := func() string {
		return fmt.Sprintf("partition %d, offset %d, key %q", record.Partition, record.Offset, record.Key)
	}
	if len(record.Headers) != 1 || record.Headers[0].Key != lineHeader {
		return fmt.Errorf("%s: headers are %v, want %q", place(), record.Headers, lineHeader)
	}
	if n, err := strconv.ParseInt(string(record.Headers[0].Value), 10, 64); err != nil || n != c.lines {
		return fmt.Errorf("%s: line %s, want line %d", place(), record.Headers[0].Value, c.lines)
	}
	r.records++
	r.bytes += int64(len(record.Value))
	if c.file == nil {
		c.hash.add(record.Value)
		return nil
	}
	want, err := c.reader.next()
	if err != nil {
		return fmt.Errorf("%s: line %d is not in the source: %w", place(), c.lines, err)
	}
	if !bytes.Equal(want, record.Value) {
		return fmt.Errorf("%s: line %d is %.80q in the log and %.80q in the source", place(), c.lines, record.Value, want)
	}
	return r.endOfFile(string(record.Key), c)
}

// begin opens the file that a key names.
func (r *reading) begin(key string) (*comparison, error) {
	file, err := r.source.again(key)
	if err != nil {
		return nil, err
	}
	c := &comparison{file: file, hash: newLineHash()}
	if file != nil {
		c.reader.reset(key, file)
	}
	r.open[key] = c
	return c, nil
}

// endOfFile closes a file whose last line was seen.
func (r *reading) endOfFile(key string, c *comparison) error {
	end, err := c.reader.atEnd()
	if err != nil || !end {
		return err
	}
	delete(r.open, key)
	r.files++
	return c.file.Close()
}

// finish checks that no file lacks its end.
func (r *reading) finish() error {
	for key, c := range r.open {
		if c.file != nil {
			return fmt.Errorf("%q ends after %d lines in the log and goes on in the source", key, c.lines)
		}
		if c.hash.Sum64() != r.source.sum() {
			return fmt.Errorf("the lines of %q in the log are not those of the source", key)
		}
		r.files++
	}
	return nil
}
