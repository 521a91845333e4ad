package billet

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/billetlog/billet/internal/batch"
)

// idempotentBatch is one record of an idempotent producer.
func idempotentBatch(id int64, epoch int16, sequence int32) []byte {
	var b batch.Builder
	b.Reset(batch.BuilderOptions{HasProducer: true, ProducerID: id, ProducerEpoch: epoch, BaseSequence: sequence})
	b.Append(1, nil, fmt.Appendf(nil, "%d", sequence), nil)
	out, err := b.Finish()
	if err != nil {
		return nil
	}
	return out
}

// A producer's batch that comes again is answered with the offset that it has.
func TestKafkaIdempotence(t *testing.T) {
	log := kafkaLog(t, "once", 1)
	client := kafkaClient(t, log, kgo.MaxVersions(kversion.V3_0_0())) // topics go by name
	id, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(within(t), client)
	if err != nil || id.ErrorCode != 0 {
		t.Fatalf("%+v %v", id, err)
	}
	produce := func(epoch int16, sequence int32) (offset int64, err error) {
		q := kmsg.NewPtrProduceRequest()
		q.Acks, q.TimeoutMillis = -1, 30_000
		q.Topics = []kmsg.ProduceRequestTopic{{Topic: "once", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: idempotentBatch(id.ProducerID, epoch, sequence)}}}}
		r, err := q.RequestWith(within(t), client)
		if err != nil {
			t.Fatal(err)
		}
		p := r.Topics[0].Partitions[0]
		return p.BaseOffset, kerr.ErrorForCode(p.ErrorCode)
	}
	const batches = 5 // as many as are remembered
	for range 2 {
		for i := range int32(batches) {
			if offset, err := produce(0, i); err != nil || offset != int64(i) {
				t.Errorf("sequence %d: offset %d, %v", i, offset, err)
			}
		}
	}
	if _, err := produce(0, batches+1); !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
		t.Errorf("a gap: %v", err)
	}
	if offset, err := produce(1, 0); err != nil || offset != batches {
		t.Errorf("another epoch: offset %d, %v", offset, err)
	}
	if _, err := produce(0, batches); !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Errorf("an older epoch: %v", err)
	}
}

// Producers beside one another, with records of all sizes up to the largest, and readers
// that take little at a time: nothing is lost, twice or out of order.
func TestKafkaConcurrentProducers(t *testing.T) {
	log := kafkaLog(t, "many", 4)
	const producers, records = 4, 300
	var producing sync.WaitGroup
	for n := range producers {
		acks := []kgo.Opt{kgo.RequiredAcks(kgo.AllISRAcks())}
		if n == 0 {
			acks = []kgo.Opt{kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1)}
		}
		client := kafkaClient(t, log, append(acks, kgo.DefaultProduceTopic("many"), kgo.ProducerBatchMaxBytes(1<<20), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))...)
		producing.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(n)))
			for i := range records {
				size := 10
				if i%50 == 0 {
					size = 900 << 10
				} else if i%3 == 0 {
					size = random.IntN(40 << 10)
				}
				value := append(fmt.Appendf(nil, "%d ", i), bytes.Repeat([]byte{byte(n)}, size)...)
				client.Produce(t.Context(), &kgo.Record{Key: fmt.Append(nil, n), Value: value}, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Error(err)
					}
				})
			}
			if err := client.Flush(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
	for _, each := range []int32{1000, 1 << 20} {
		consumer := kafkaClient(t, log, kgo.ConsumeTopics("many"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(each), kgo.FetchMaxBytes(each*2))
		next := map[string]int{}
		for got := 0; got < producers*records; {
			fetches := consumer.PollFetches(within(t))
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			fetches.EachRecord(func(r *kgo.Record) {
				var i int
				if _, err := fmt.Sscan(string(r.Value[:min(len(r.Value), 8)]), &i); err != nil || i != next[string(r.Key)] {
					t.Fatalf("producer %s: record %d at %d-%d, want %d (%v)", r.Key, i, r.Partition, r.Offset, next[string(r.Key)], err)
				}
				next[string(r.Key)]++
				got++
			})
		}
	}
	producing.Wait()
	client := kafkaClient(t, log, kgo.DefaultProduceTopic("many"), kgo.ProducerBatchMaxBytes(8<<20), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err := client.ProduceSync(within(t), &kgo.Record{Value: make([]byte, 2<<20)}).FirstErr(); !errors.Is(err, kerr.MessageTooLarge) {
		t.Errorf("too large a record: %v", err)
	}
}

// Whatever a producer waits for, what it has written on its connection it finds there.
func TestKafkaReadYourWrites(t *testing.T) {
	log := kafkaLog(t, "mine", 1)
	client := kafkaClient(t, log, kgo.MaxVersions(kversion.V3_0_0()))
	node := client.Broker(int(log.config.NodeID))
	for i := range int64(30) {
		q := kmsg.NewPtrProduceRequest()
		q.Acks, q.TimeoutMillis = 1, 30_000
		q.Topics = []kmsg.ProduceRequestTopic{{Topic: "mine", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: idempotentBatch(-1, -1, -1)}}}}
		if _, err := node.Request(within(t), q); err != nil {
			t.Fatal(err)
		}
		ask := kmsg.NewPtrListOffsetsRequest()
		ask.ReplicaID = -1
		ask.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "mine", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: -1, CurrentLeaderEpoch: -1}}}}
		r, err := node.Request(within(t), ask)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset; got != i+1 {
			t.Fatalf("the end is %d after %d records", got, i+1)
		}
	}
}
