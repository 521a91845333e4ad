package billet

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaCluster is three nodes with listeners.
type kafkaCluster struct {
	t       *testing.T
	configs []Config
	logs    []*Log
}

const kafkaNodes = 3

func openKafkaCluster(t *testing.T) *kafkaCluster {
	t.Helper()
	c := &kafkaCluster{t: t, logs: make([]*Log, kafkaNodes)}
	addresses := freeAddresses(t, 2*kafkaNodes)
	for i := range kafkaNodes {
		c.configs = append(c.configs, Config{
			Dir: t.TempDir(), NodeID: int32(i + 1),
			Cluster: Cluster{Listen: addresses[i], Join: addresses[:kafkaNodes], Bootstrap: []int32{1, 2, 3}, Rack: fmt.Sprint("rack", i+1)},
			Kafka:   Kafka{Addr: addresses[kafkaNodes+i]},
		})
	}
	var opening sync.WaitGroup
	for i := range kafkaNodes {
		opening.Go(func() { c.open(i) })
	}
	opening.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for i := range c.logs {
			c.close(i)
		}
	})
	return c
}

func (c *kafkaCluster) open(i int) {
	log, err := Open(c.configs[i])
	if err != nil {
		c.t.Errorf("node %d: %v", i+1, err)
		return
	}
	c.logs[i] = log
}

func (c *kafkaCluster) close(i int) {
	if c.logs[i] == nil {
		return
	}
	if err := c.logs[i].Close(); err != nil {
		c.t.Errorf("node %d: %v", i+1, err)
	}
	c.logs[i] = nil
}

func (c *kafkaCluster) seeds() kgo.Opt {
	var out []string
	for i := range c.configs {
		out = append(out, c.configs[i].Kafka.Addr)
	}
	return kgo.SeedBrokers(out...)
}

// What a Kafka producer was told is there, once and in order, though every node goes down
// and comes back meanwhile.
func TestKafkaLeadersMove(t *testing.T) {
	c := openKafkaCluster(t)
	const partitions = 3
	if err := c.logs[0].CreateTopic(within(t), Topic{Name: "moves", Partitions: partitions, Replicas: kafkaNodes}); err != nil {
		t.Fatal(err)
	}
	producer, err := kgo.NewClient(c.seeds(), kgo.DefaultProduceTopic("moves"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50*time.Millisecond),
		kgo.RecordDeliveryTimeout(2*time.Minute), kgo.ProducerLinger(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	ctx, stop := context.WithCancel(t.Context())
	var sent [partitions]int
	var producing sync.WaitGroup
	for p := range partitions {
		producing.Go(func() {
			for ; ctx.Err() == nil; sent[p]++ {
				producer.Produce(t.Context(), &kgo.Record{Partition: int32(p), Value: fmt.Appendf(nil, "%d", sent[p])}, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Errorf("partition %d: %v", p, err)
					}
				})
				if sent[p]%50 == 0 {
					pauseFor(ctx, time.Millisecond)
				}
			}
		})
	}
	reading := make(chan int, 1)
	go func() { reading <- c.readMoves(within(t), producer) }()
	for i := range kafkaNodes {
		pauseFor(t.Context(), 300*time.Millisecond)
		c.close(i)
		pauseFor(t.Context(), 300*time.Millisecond)
		c.open(i)
	}
	stop()
	producing.Wait()
	if err := producer.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, n := range sent {
		total += n
	}
	producer.ProduceSync(within(t), &kgo.Record{Partition: 0, Key: []byte("end"), Value: fmt.Append(nil, total)})
	if got := <-reading; got != total {
		t.Errorf("%d records were read, %d acknowledged", got, total)
	}
}

// readMoves reads until the record that says how many there are, and as many.
func (c *kafkaCluster) readMoves(ctx context.Context, _ *kgo.Client) (got int) {
	consumer, err := kgo.NewClient(c.seeds(), kgo.ConsumeTopics("moves"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(50*time.Millisecond),
		kgo.Rack("rack2"), kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		c.t.Error(err)
		return 0
	}
	defer consumer.Close()
	next, total := map[int32]int{}, -1
	for got != total {
		fetches := consumer.PollFetches(ctx)
		if ctx.Err() != nil {
			return got
		}
		fetches.EachError(func(topic string, p int32, err error) { c.t.Logf("reading %s-%d: %v", topic, p, err) })
		fetches.EachRecord(func(r *kgo.Record) {
			if string(r.Key) == "end" {
				_, _ = fmt.Sscan(string(r.Value), &total)
				return
			}
			if want := fmt.Sprint(next[r.Partition]); string(r.Value) != want {
				c.t.Errorf("partition %d has %s at offset %d, want %s", r.Partition, r.Value, r.Offset, want)
			}
			next[r.Partition]++
			got++
		})
	}
	return got
}
