package billet

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaLog is a node with a listener and a topic, and the ways to make clients of it.
func kafkaLog(t *testing.T, topic string, partitions int) *Log {
	t.Helper()
	log, err := Open(Config{Dir: t.TempDir(), Kafka: Kafka{Addr: "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := log.CreateTopic(t.Context(), Topic{Name: topic, Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	return log
}

// kafkaClient is a client of a node.
func kafkaClient(t *testing.T, log *Log, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(log.KafkaAddr())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// within is a context for what has to happen soon.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Records that a Kafka client writes come back as they were, whatever the codec.
func TestKafkaCodecs(t *testing.T) {
	log := kafkaLog(t, "codecs", 1)
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	var wrote []*kgo.Record
	for n, codec := range codecs {
		producer := kafkaClient(t, log, kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic("codecs"))
		for i := range 100 {
			wrote = append(wrote, &kgo.Record{
				Key: fmt.Appendf(nil, "%d-%d", n, i), Value: bytes.Repeat([]byte{byte(i)}, 100*i),
				Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte{byte(n)}}, {Key: "none"}},
			})
		}
		wrote[len(wrote)-1].Value = nil
		if err := producer.ProduceSync(within(t), wrote[n*100:]...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	consumer := kafkaClient(t, log, kgo.ConsumeTopics("codecs"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for offset := 0; offset < len(wrote); {
		fetches := consumer.PollFetches(within(t))
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			want := wrote[offset]
			if r.Offset != int64(offset) || !bytes.Equal(r.Key, want.Key) || !bytes.Equal(r.Value, want.Value) || (r.Value == nil) != (want.Value == nil) ||
				len(r.Headers) != 2 || !bytes.Equal(r.Headers[0].Value, want.Headers[0].Value) || r.Headers[1].Value != nil || r.Timestamp.UnixMilli() != want.Timestamp.UnixMilli() {
				t.Fatalf("at %d: got %+v, want %+v", offset, r, want)
			}
			offset++
		})
	}
}
