package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/billetlog/billet"
)

// writing counts what is produced and acknowledged.
type writing struct {
	progress *progress
	produced int64

	mu sync.Mutex
	// next is the offset of each partition's next acknowledgement.
	next  []int64
	acked int64
	err   error // the first failure
}

// produce sends every line of the source and waits for all acknowledgements.
func produce(ctx context.Context, log *billet.Log, src source, begin []int64, p *progress) (*writing, error) {
	producer, err := log.NewProducer(billet.ProducerConfig{})
	if err != nil {
		return nil, err
	}
	w := &writing{progress: p, next: append([]int64(nil), begin...)}
	err = src.each(func(file string, lines *lineReader) error { return w.file(ctx, producer, file, lines) })
	if err == nil {
		err = producer.Flush(ctx)
	}
	err = errors.Join(err, producer.Close())

	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return nil, w.err
	case err != nil:
		return nil, err
	case w.acked != w.produced:
		return nil, fmt.Errorf("%d lines were produced and %d acknowledged", w.produced, w.acked)
	}
	return w, nil
}

// file produces the lines of one file.
func (w *writing) file(ctx context.Context, producer *billet.Producer, name string, lines *lineReader) error {
	var number []byte
	headers := []billet.Header{{Key: lineHeader}}
	record := billet.Record{Topic: topic, Key: []byte(name), Headers: headers}
	for {
		line, err := lines.next()
		if err == io.EOF {
			return w.failure()
		}
		if err != nil {
			return err
		}
		number = strconv.AppendInt(number[:0], lines.line, 10)
		headers[0].Value = number
		record.Value = line
		// Produce has taken a copy when it returns.
		if err := producer.Produce(ctx, record, w.done); err != nil {
			return fmt.Errorf("line %d of %s: %w", lines.line, name, err)
		}
		w.produced++
		w.progress.produced.Add(1)
	}
}

// lineHeader is the header that holds a line's number.
const lineHeader = "line"

// done is called once for each record, in order within a partition. Nobody else
// writes to the topic, so offsets must follow each other.
func (w *writing) done(at billet.Offset, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if err != nil {
		w.err = err
		return
	}
	if want := w.next[at.Partition]; at.Offset != want {
		w.err = fmt.Errorf("partition %d acknowledged offset %d, want %d", at.Partition, at.Offset, want)
		return
	}
	w.next[at.Partition]++
	w.acked++
}

func (w *writing) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
