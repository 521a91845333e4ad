package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const recordBytes = 1024

// pool has the bytes of which records are slices: nothing that could be compressed.
type pool []byte

func newPool() pool {
	p := make(pool, 16<<20)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(p)
	return p
}

func (p pool) record(i int) []byte {
	at := i * recordBytes % (len(p) - recordBytes)
	return p[at : at+recordBytes]
}

// waits gathers how long records took.
type waits struct {
	mu struct {
		sync.Mutex
		all []time.Duration
		err error
	}
}

func (w *waits) add(began time.Time, err error) {
	d := time.Since(began)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.all = append(w.mu.all, d)
	w.mu.err = errors.Join(w.mu.err, err)
}

func (w *waits) result() ([]time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.all, w.mu.err
}

// flooded is what a flood came to.
type flooded struct {
	rate  float64 // MB/s
	waits []time.Duration
}

// producer is the client of all cases: idempotent, acks=all, no compression.
func (b *broker) producer(topic string, more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.address), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchMaxBytes(1 << 20),
	}, more...)...)
}

// flood sends as fast as records are taken, and waits for all of them.
func (b *broker) flood(ctx context.Context, topic string, d time.Duration) (flooded, error) {
	client, err := b.producer(topic, kgo.MaxBufferedRecords(16384), kgo.ProducerLinger(time.Millisecond))
	if err != nil {
		return flooded{}, err
	}
	defer client.Close()
	records, w := newPool(), &waits{}
	begin, n := time.Now(), 0
	for time.Since(begin) < d && ctx.Err() == nil {
		for range 64 {
			sent := time.Now()
			client.Produce(ctx, &kgo.Record{Value: records.record(n)}, func(_ *kgo.Record, err error) { w.add(sent, err) })
			n++
		}
	}
	if err := client.Flush(ctx); err != nil {
		return flooded{}, err
	}
	took := time.Since(begin)
	all, err := w.result()
	if err == nil && len(all) != n {
		err = fmt.Errorf("%d records sent, %d acknowledged", n, len(all))
	}
	return flooded{rate: float64(n) * recordBytes / 1e6 / took.Seconds(), waits: all}, err
}

// paced sends at a rate whatever happens, from the time on at which each is due.
func (b *broker) paced(ctx context.Context, topic string, d time.Duration, rate int) ([]time.Duration, error) {
	client, err := b.producer(topic, kgo.ProducerLinger(0))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records, w := newPool(), &waits{}
	begin := time.Now()
	for n := range int(d.Seconds() * float64(rate)) {
		due := begin.Add(time.Duration(n) * time.Second / time.Duration(rate))
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Until(due)):
		}
		client.Produce(ctx, &kgo.Record{Value: records.record(n)}, func(_ *kgo.Record, err error) { w.add(due, err) })
	}
	if err := client.Flush(ctx); err != nil {
		return nil, err
	}
	all, err := w.result()
	return all[min(len(all), rate/2):], err // the first ones wait for connections
}
