package billet

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestKafkaMetrics(t *testing.T) {
	log, client := openKafkaAdmin(t, Config{Kafka: Kafka{RequestMemoryMax: 256 << 20}})
	q := kmsg.NewPtrCreateTopicsRequest()
	q.Topics = append(q.Topics, newKafkaTopic("t", 1, 1), newKafkaTopic("..", 1, 1))
	askKafka[*kmsg.CreateTopicsResponse](t, client, q)
	m := log.Metrics().Kafka
	if len(m.Listeners) != 1 || m.Listeners[0].Open < 1 || m.Listeners[0].BytesReceived == 0 || m.RequestMemory.Max < 256<<20 {
		t.Fatalf("%+v", m)
	}
	for _, r := range m.Requests {
		if r.Name == "CreateTopics" && r.Count == 1 && r.Errors[17] == 1 && len(r.Times) == len(m.RequestTimes)+1 {
			return
		}
	}
	t.Errorf("nothing tells of a topic with a bad name: %+v", m.Requests)
}
