package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// rawFileBytes is the size of the file that overwriting goes round in.
const rawFileBytes = 256 << 20

// writer is a bare file that blocks of one size are written to.
type writer struct {
	file *os.File
	at   int64
	wrap int64 // go back to the start here; 0 for a file that only grows
}

// newOverwriter opens the file in dir, written and synced once before, so that
// a write changes neither its size nor its extents.
func newOverwriter(dir string) (*writer, error) {
	path := filepath.Join(dir, "overwrite")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Size() < rawFileBytes {
		err = fillFile(file, rawFileBytes)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return &writer{file: file, wrap: rawFileBytes}, nil
}

// newAppender creates an empty file in dir.
func newAppender(dir string) (*writer, error) {
	file, err := os.Create(filepath.Join(dir, "append"))
	if err != nil {
		return nil, err
	}
	return &writer{file: file}, nil
}

// fillFile writes size bytes from the pool and syncs them.
func fillFile(file *os.File, size int64) error {
	const block = 1 << 20
	payloads := newPool(poolBytes)
	for at := int64(0); at < size; at += block {
		if _, err := file.WriteAt(payloads.record(at/block, block), at); err != nil {
			return err
		}
	}
	return file.Sync()
}

func (w *writer) write(block []byte) error {
	if w.wrap > 0 && w.at+int64(len(block)) > w.wrap {
		w.at = 0
	}
	_, err := w.file.WriteAt(block, w.at)
	w.at += int64(len(block))
	return err
}

func (w *writer) sync() error { return unix.Fdatasync(int(w.file.Fd())) }

// close closes the file and removes one that only grew.
func (w *writer) close() error {
	err := w.file.Close()
	if w.wrap == 0 {
		err = errors.Join(err, os.Remove(w.file.Name()))
	}
	return err
}

// rawWrites measures a loop that writes blocks of the load's size and, if
// durable, syncs each. Latencies are of one block, perBlock records each.
func rawWrites(open func(dir string) (*writer, error), l load, durable bool, perBlock int) func(context.Context, string) (measures, error) {
	return func(_ context.Context, dir string) (m measures, err error) {
		w, err := open(dir)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, w.close()) }()
		var each latencies
		feeder := l.start()[0]
		start := time.Now()
		last := start
		for {
			block, ok := feeder.next()
			if !ok {
				break
			}
			if err := w.write(block); err != nil {
				return nil, err
			}
			if durable {
				if err := w.sync(); err != nil {
					return nil, err
				}
			}
			now := time.Now()
			each = append(each, now.Sub(last))
			last = now
		}
		m = each.measures()
		for name, v := range throughput(feeder.given, l.size, time.Since(start)) {
			m[name] = v
		}
		m["records/s"] *= float64(perBlock)
		return m, nil
	}
}

// prepareOverwrite makes the file for newOverwriter.
func prepareOverwrite(_ context.Context, dir string) error {
	w, err := newOverwriter(dir)
	if err != nil {
		return err
	}
	return w.close()
}

// rawRead measures reading a file from page cache, bare and with a CRC32C of
// every byte.
func rawRead(size int64) (prepare func(context.Context, string) error, run func(context.Context, string) (measures, error)) {
	name := func(dir string) string { return filepath.Join(dir, "read") }
	prepare = func(_ context.Context, dir string) error {
		file, err := os.Create(name(dir))
		if err != nil {
			return err
		}
		return errors.Join(fillFile(file, size), file.Close())
	}
	run = func(_ context.Context, dir string) (measures, error) {
		file, err := os.Open(name(dir))
		if err != nil {
			return nil, err
		}
		defer file.Close()
		bare, err := readThrough(file, size, func([]byte) {})
		if err != nil {
			return nil, err
		}
		sum, table := uint32(0), crc32.MakeTable(crc32.Castagnoli)
		checked, err := readThrough(file, size, func(b []byte) { sum = crc32.Update(sum, table, b) })
		if err != nil {
			return nil, err
		}
		return measures{"MB/s": bare, "MB/s with crc": checked}, nil
	}
	return prepare, run
}

// readThrough reads a file once and returns MB/s.
func readThrough(file *os.File, size int64, visit func([]byte)) (float64, error) {
	block := make([]byte, 1<<20)
	start := time.Now()
	for at := int64(0); at < size; {
		n, err := file.ReadAt(block, at)
		if n == 0 {
			return 0, fmt.Errorf("read at %d of %d: %w", at, size, err)
		}
		visit(block[:n])
		at += int64(n)
	}
	return float64(size) / 1e6 / time.Since(start).Seconds(), nil
}

// rawHandoff is the floor of end to end: write to a file without sync, then
// wake a goroutine.
type rawHandoff struct {
	file   *os.File
	at     int64
	values chan []byte
}

func newRawHandoff(dir string) (*rawHandoff, error) {
	file, err := os.Create(filepath.Join(dir, "handoff"))
	if err != nil {
		return nil, err
	}
	return &rawHandoff{file: file, values: make(chan []byte, 1024)}, nil
}

func (h *rawHandoff) Send(_ context.Context, value []byte) error {
	_, err := h.file.WriteAt(value, h.at)
	h.at += int64(len(value))
	h.values <- value
	return err
}

func (h *rawHandoff) Sent(context.Context) error { return nil }

func (h *rawHandoff) Consume(ctx context.Context, visit func([]byte) error) error {
	for {
		select {
		case value := <-h.values:
			if err := visit(value); err != nil {
				if errors.Is(err, errEnough) {
					return nil
				}
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (h *rawHandoff) Close() error { return h.file.Close() }
