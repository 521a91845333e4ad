package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/billetlog/billet"
)

const billetTopic = "bench"

// billetLog is a log with one topic.
type billetLog struct {
	shape  shape
	log    *billet.Log
	manual *billet.Producer // records go to the partition they name
	sender *billet.Producer

	failure atomic.Pointer[error] // the first one of a record that was sent
}

// producerWindow returns how many batches of a partition a Producer has in
// flight: as many as one sync can make durable together.
func producerWindow() int {
	var config billet.ProducerConfig
	config.EnsureDefaults()
	return config.MaxInFlight
}

func openBillet(ctx context.Context, dir string, s shape) (system, error) {
	log, err := billet.Open(billet.Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	b := &billetLog{shape: s, log: log}
	if err := b.start(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// start makes the topic and the producers.
func (b *billetLog) start(ctx context.Context) (err error) {
	if !b.shape.Existing {
		fsync := billet.FsyncInterval
		if b.shape.Durable {
			fsync = billet.FsyncCommit
		}
		err := b.log.CreateTopic(ctx, billet.Topic{Name: billetTopic, Partitions: b.shape.Partitions, Fsync: fsync})
		if err != nil {
			return err
		}
	}
	if b.shape.Partitions == 1 {
		return nil // Publish uses Log.Produce
	}
	b.manual, err = b.log.NewProducer(billet.ProducerConfig{Partitioner: billet.ManualPartitioner})
	return err
}

func (b *billetLog) Close() error {
	var errs []error
	for _, p := range []*billet.Producer{b.sender, b.manual} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(append(errs, b.log.Close())...)
}

func (b *billetLog) Publish(ctx context.Context, partition int, value []byte) error {
	record := billet.Record{Topic: billetTopic, Partition: int32(partition), Value: value}
	if b.manual != nil {
		_, err := b.manual.ProduceSync(ctx, record)
		return err
	}
	_, err := b.log.Produce(ctx, record)
	return err
}

func (b *billetLog) Count(ctx context.Context) (records int64, err error) {
	info, err := b.log.Topic(ctx, billetTopic)
	if err != nil {
		return 0, err
	}
	for _, p := range info.Partitions {
		records += p.HighWatermark - p.Start
	}
	return records, nil
}

// Ingest uses one Producer for all feeders. Every record's result is looked at:
// in each partition offsets follow each other.
func (b *billetLog) Ingest(ctx context.Context, l load, acked *atomic.Int64) error {
	producer, err := b.log.NewProducer(billet.ProducerConfig{BatchBytes: b.shape.BatchBytes})
	if err != nil {
		return err
	}
	last := make([]int64, b.shape.Partitions)
	done := func(o billet.Offset, err error) {
		if err == nil && last[o.Partition] > 0 && o.Offset != last[o.Partition]+1 {
			err = fmt.Errorf("partition %d: offset %d follows %d", o.Partition, o.Offset, last[o.Partition])
		}
		if err != nil {
			b.fail(err)
			return
		}
		last[o.Partition] = o.Offset
		acked.Add(1)
	}
	errs := make([]error, l.feeders)
	var wg sync.WaitGroup
	feeders := l.start()
	for i, f := range feeders {
		wg.Go(func() { errs[i] = produceAll(ctx, producer, f, done) })
	}
	wg.Wait()
	errs = append(errs, producer.Flush(ctx), producer.Close(), b.failed())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if acked.Load() != given(feeders) {
		return fmt.Errorf("%d records given, %d acknowledged", given(feeders), acked.Load())
	}
	return nil
}

// produceAll gives a feeder's records to the producer.
func produceAll(ctx context.Context, producer *billet.Producer, f *feeder, done func(billet.Offset, error)) error {
	for {
		value, ok := f.next()
		if !ok {
			return nil
		}
		if err := producer.Produce(ctx, billet.Record{Topic: billetTopic, Value: value}, done); err != nil {
			return err
		}
	}
}

func (b *billetLog) fail(err error) { b.failure.CompareAndSwap(nil, &err) }

func (b *billetLog) failed() error {
	if err := b.failure.Load(); err != nil {
		return *err
	}
	return nil
}

func (b *billetLog) Consume(ctx context.Context, visit func([]byte) error) (err error) {
	consumer, err := b.log.NewConsumer(billet.ConsumerConfig{Assign: map[string][]int32{billetTopic: {0}}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
	for offset := int64(0); ; {
		records, err := consumer.Poll(ctx)
		if err != nil {
			return err
		}
		for i := range records {
			if records[i].Offset != offset {
				return fmt.Errorf("offset %d where %d was expected", records[i].Offset, offset)
			}
			offset++
			if err := visit(records[i].Value); errors.Is(err, errEnough) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
}

func (b *billetLog) Send(ctx context.Context, value []byte) (err error) {
	if b.sender == nil {
		if b.sender, err = b.log.NewProducer(billet.ProducerConfig{}); err != nil {
			return err
		}
	}
	return b.sender.Produce(ctx, billet.Record{Topic: billetTopic, Value: value}, nil)
}

// Sent learns of records that failed from Flush.
func (b *billetLog) Sent(ctx context.Context) error {
	if b.sender == nil {
		return nil
	}
	return b.sender.Flush(ctx)
}
