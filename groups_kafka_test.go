package billet

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func openKafkaLog(t *testing.T, dir string) *Log {
	t.Helper()
	log, err := Open(Config{Dir: dir, Kafka: Kafka{Addr: "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// Offsets and an empty group are there after the node was closed and opened.
func TestKafkaGroupOffsets(t *testing.T) {
	dir := t.TempDir()
	log := openKafkaLog(t, dir)
	if err := log.CreateTopic(t.Context(), Topic{Name: "t", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for round := range 2 {
		client, err := kgo.NewClient(kgo.SeedBrokers(log.KafkaAddr()))
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			q := kmsg.NewPtrOffsetCommitRequest()
			q.Group, q.Generation = "g", -1
			topic := kmsg.NewOffsetCommitRequestTopic()
			topic.Topic = "t"
			for n := range int32(3) {
				p := kmsg.NewOffsetCommitRequestTopicPartition()
				p.Partition, p.Offset = n, 7+int64(n)
				topic.Partitions = append(topic.Partitions, p)
			}
			q.Topics = append(q.Topics, topic)
			r, err := q.RequestWith(ctx, client)
			if err != nil {
				t.Fatal(err)
			}
			if codes := []int16{r.Topics[0].Partitions[0].ErrorCode, r.Topics[0].Partitions[1].ErrorCode, r.Topics[0].Partitions[2].ErrorCode}; codes[0] != 0 || codes[1] != 0 || codes[2] != 3 {
				t.Fatalf("a commit to partitions 0, 1 and one that is not there: codes %v", codes)
			}
		}
		admin := kadm.NewClient(client)
		offsets, err := admin.FetchOffsets(ctx, "g")
		if err != nil {
			t.Fatal(err)
		}
		for n := range int32(2) {
			if o, ok := offsets.Lookup("t", n); !ok || o.At != 7+int64(n) {
				t.Errorf("round %d: partition %d is at %v, %v", round, n, o, ok)
			}
		}
		client.Close()
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			log = openKafkaLog(t, dir)
		}
	}
}
