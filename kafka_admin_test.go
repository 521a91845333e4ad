package billet

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// openKafkaAdmin opens a log with a listener and a client that asks it.
func openKafkaAdmin(t *testing.T, config Config) (*Log, *kgo.Client) {
	t.Helper()
	config.Dir, config.Kafka.Addr = t.TempDir(), "127.0.0.1:0"
	log, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(log.KafkaAddr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return log, client
}

// askKafka sends a request to the client's only node.
func askKafka[R kmsg.Response](t *testing.T, client *kgo.Client, q kmsg.Request) R {
	t.Helper()
	r, err := client.SeedBrokers()[0].Request(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return r.(R)
}

func newKafkaTopic(name string, partitions int32, replicas int16, config ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replicas
	for i := 0; i < len(config); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = config[i], &config[i+1]
		t.Configs = append(t.Configs, c)
	}
	return t
}

func TestKafkaCreateAndDeleteTopics(t *testing.T) {
	log, client := openKafkaAdmin(t, Config{Kafka: Kafka{DefaultPartitions: 2}, TopicDefaults: map[string]string{"segment.ms": "60000"}})
	long := make([]byte, 250)
	for i := range long {
		long[i] = 'x'
	}
	for _, c := range []struct {
		topic kmsg.CreateTopicsRequestTopic
		code  int16
	}{
		{newKafkaTopic("a.b", -1, -1, "retention.ms", "5000"), 0},
		{newKafkaTopic("a.b", 1, 1), kerr.TOPIC_ALREADY_EXISTS},
		{newKafkaTopic("a_b", 1, 1), kerr.INVALID_TOPIC_EXCEPTION},
		{newKafkaTopic("", 1, 1), kerr.INVALID_TOPIC_EXCEPTION},
		{newKafkaTopic("..", 1, 1), kerr.INVALID_TOPIC_EXCEPTION},
		{newKafkaTopic("a b", 1, 1), kerr.INVALID_TOPIC_EXCEPTION},
		{newKafkaTopic(string(long), 1, 1), kerr.INVALID_TOPIC_EXCEPTION},
		{newKafkaTopic(string(long[1:]), 1, 1), 0},
		{newKafkaTopic("__consumer_offsets", 1, 1), kerr.INVALID_REQUEST},
		{newKafkaTopic("p", 0, 1), kerr.INVALID_PARTITIONS},
		{newKafkaTopic("p", -2, 1), kerr.INVALID_PARTITIONS},
		{newKafkaTopic("p", 10_001, 1), kerr.INVALID_PARTITIONS},
		{newKafkaTopic("p", 1, 0), kerr.INVALID_REPLICATION_FACTOR},
		{newKafkaTopic("p", 1, 2), kerr.INVALID_REPLICATION_FACTOR},
		{newKafkaTopic("p", 1, 1, "no.such.key", "1"), kerr.INVALID_CONFIG},
		{newKafkaTopic("p", 1, 1, "retention.ms", "soon"), kerr.INVALID_CONFIG},
		{newKafkaTopic("p", 1, 1, "cleanup.policy", "compact"), kerr.INVALID_CONFIG},
	} {
		for _, only := range []bool{true, false} {
			q := kmsg.NewPtrCreateTopicsRequest()
			q.Topics, q.ValidateOnly = append(q.Topics, c.topic), only
			got := askKafka[*kmsg.CreateTopicsResponse](t, client, q).Topics[0]
			if got.ErrorCode != c.code {
				t.Errorf("%.20q: code %d, want %d: %v", c.topic.Topic, got.ErrorCode, c.code, got.ErrorMessage)
			}
			if (got.ErrorMessage == nil) != (c.code == 0) {
				t.Errorf("%.20q: code %d with the message %v", c.topic.Topic, c.code, got.ErrorMessage)
			}
		}
	}
	info, err := log.Topic(t.Context(), "a.b")
	if err != nil || len(info.Partitions) != 2 {
		t.Fatalf("%+v %v", info, err)
	}
	set := map[string]string{}
	for _, s := range info.Config {
		if s.Source == SourceTopic {
			set[s.Name] = s.Value
		}
	}
	if len(set) != 2 || set["retention.ms"] != "5000" || set["segment.ms"] != "60000" {
		t.Errorf("settings %v", set)
	}
	q := kmsg.NewPtrDeleteTopicsRequest()
	for _, name := range []string{"a.b", "a.b2", "__cluster_metadata"} {
		q.TopicNames = append(q.TopicNames, name)
		q.Topics = append(q.Topics, kmsg.DeleteTopicsRequestTopic{Topic: kmsg.StringPtr(name)})
	}
	for i, got := range askKafka[*kmsg.DeleteTopicsResponse](t, client, q).Topics {
		if want := []int16{0, kerr.UNKNOWN_TOPIC_OR_PARTITION, kerr.UNKNOWN_TOPIC_OR_PARTITION}[i]; got.ErrorCode != want {
			t.Errorf("%s: code %d, want %d", *got.Topic, got.ErrorCode, want)
		}
	}
	if _, err := log.Topic(t.Context(), "a.b"); err == nil {
		t.Error("the topic is still there")
	}
}
