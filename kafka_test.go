package billet

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A client finds out what the listener serves.
func TestKafkaListener(t *testing.T) {
	log, err := Open(Config{Dir: t.TempDir(), Kafka: Kafka{Addr: "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}()
	client, err := kgo.NewClient(kgo.SeedBrokers(log.KafkaAddr()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	answer, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.ApiKeys) == 0 {
		t.Error("nothing is served")
	}
}
