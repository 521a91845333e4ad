package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What is asked of a broker at once.
const (
	fetchBytes   = 8 << 20
	fetchVersion = 12
)

// fetch fills a topic and reads it twice from the page cache: by bare requests whose
// answers are thrown away, which is the broker's work alone, and by the client, which
// looks at each record.
func (b *broker) fetch(ctx context.Context, topic string, size int64) (raw, client float64, err error) {
	if err := b.fill(ctx, topic, size); err != nil {
		return 0, 0, err
	}
	if _, err := b.readRaw(ctx, topic, size/4); err != nil { // warms up
		return 0, 0, err
	}
	if raw, err = b.readRaw(ctx, topic, size); err != nil {
		return 0, 0, err
	}
	client, err = b.readRecords(ctx, topic, size)
	return raw, client, err
}

func (b *broker) fill(ctx context.Context, topic string, size int64) error {
	client, err := b.producer(topic, kgo.ProducerLinger(20*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	records, w := newPool(), &waits{}
	for n := range int(size / recordBytes) {
		client.Produce(ctx, &kgo.Record{Value: records.record(n)}, func(_ *kgo.Record, err error) {
			if err != nil {
				w.add(time.Now(), err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	_, err = w.result()
	return err
}

// readRaw asks for batches one request after the other and counts their bytes.
func (b *broker) readRaw(ctx context.Context, topic string, size int64) (float64, error) {
	conn, err := net.Dial("tcp", b.address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	buffer := make([]byte, fetchBytes+1<<20)
	var got, offset int64
	begin := time.Now()
	for got < size {
		n, next, err := fetchOnce(conn, buffer, topic, offset)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, fmt.Errorf("nothing at offset %d, after %d bytes", offset, got)
		}
		got, offset = got+n, next
	}
	return float64(got) / 1e6 / time.Since(begin).Seconds(), nil
}

// fetchOnce reads from an offset on and returns how many bytes of records came, and
// where the next ones are.
func fetchOnce(conn net.Conn, buffer []byte, topic string, offset int64) (n, next int64, err error) {
	q := kmsg.NewPtrFetchRequest()
	q.MaxWaitMillis, q.MinBytes, q.MaxBytes, q.SessionEpoch = 500, 1, fetchBytes, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = offset, fetchBytes
	t.Partitions = append(t.Partitions, p)
	q.Topics = append(q.Topics, t)
	q.SetVersion(fetchVersion)
	if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, q, 1)); err != nil {
		return 0, 0, err
	}
	var length [4]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return 0, 0, err
	}
	size := int(binary.BigEndian.Uint32(length[:]))
	if size > len(buffer) || size < 5 {
		return 0, 0, fmt.Errorf("an answer of %d bytes", size)
	}
	if _, err := io.ReadFull(conn, buffer[:size]); err != nil {
		return 0, 0, err
	}
	r := q.ResponseKind().(*kmsg.FetchResponse)
	if err := r.ReadFrom(buffer[5:size]); err != nil {
		return 0, 0, err
	}
	if r.ErrorCode != 0 || len(r.Topics) != 1 || r.Topics[0].Partitions[0].ErrorCode != 0 {
		return 0, 0, fmt.Errorf("an error in the answer: %+v", r.ErrorCode)
	}
	records := r.Topics[0].Partitions[0].RecordBatches
	next = offset
	for at := 0; at+61 <= len(records); {
		end := at + 12 + int(binary.BigEndian.Uint32(records[at+8:]))
		if end > len(records) {
			break // cut by the limit
		}
		next = int64(binary.BigEndian.Uint64(records[at:])) + int64(binary.BigEndian.Uint32(records[at+23:])) + 1
		at = end
	}
	return int64(len(records)), next, nil
}

// readRecords consumes with the client.
func (b *broker) readRecords(ctx context.Context, topic string, size int64) (float64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.FetchMaxBytes(fetchBytes), kgo.FetchMaxPartitionBytes(fetchBytes),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	var got int64
	begin := time.Now()
	for got+recordBytes <= size {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return 0, err
		}
		fetches.EachRecord(func(r *kgo.Record) { got += int64(len(r.Value)) })
	}
	return float64(got) / 1e6 / time.Since(begin).Seconds(), nil
}

// sendfile sends a file of the same size over loopback, by the kernel alone, to a
// reader like that of readRaw.
func sendfile(ctx context.Context, o options) (float64, error) {
	path := filepath.Join(o.dir, "sendfile")
	if err := writeFile(path, o.fetched); err != nil {
		return 0, err
	}
	defer os.Remove(path)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	served := make(chan error, 1)
	go func() { served <- serveFile(listener, path, 2) }()
	var rate float64
	for range 2 { // the first time warms up
		begin := time.Now()
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			return 0, err
		}
		buffer := make([]byte, fetchBytes)
		var got int64
		for err == nil {
			var n int
			n, err = conn.Read(buffer)
			got += int64(n)
		}
		_ = conn.Close()
		if !errors.Is(err, io.EOF) || got != o.fetched {
			return 0, fmt.Errorf("sendfile: %d of %d bytes: %w", got, o.fetched, err)
		}
		rate = float64(got) / 1e6 / time.Since(begin).Seconds()
	}
	return rate, <-served
}

// serveFile sends the file to each of some connections.
func serveFile(listener net.Listener, path string, times int) error {
	for range times {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err == nil {
			_, err = conn.(*net.TCPConn).ReadFrom(f)
			err = errors.Join(err, f.Close())
		}
		if err := errors.Join(err, conn.Close()); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(path string, size int64) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, records := bufio.NewWriterSize(f, 1<<20), newPool()
	for n := range int(size / recordBytes) {
		if _, err := w.Write(records.record(n)); err != nil {
			return err
		}
	}
	return w.Flush()
}
