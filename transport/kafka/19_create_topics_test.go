package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

func createRequest(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	q := kmsg.NewPtrCreateTopicsRequest()
	q.Topics = topics
	return q
}

func createTopic(name string, partitions int32, replicas int16, config ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replicas
	for i := 0; i < len(config); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = config[i], &config[i+1]
		t.Configs = append(t.Configs, c)
	}
	return t
}

func TestCreateTopicsVersions(t *testing.T) {
	versionsOf(t, kmsg.CreateTopics, func(t *testing.T, v int16) {
		b := newAdminBroker()
		s := serveAdmin(t, b)
		q := createRequest(createTopic("a", -1, -1, "retention.ms", "5"), createTopic("b", 2, 4), createTopic("twice", 1, 1), createTopic("twice", 2, 1), createTopic("c", 1, 1))
		r := askAdmin[*kmsg.CreateTopicsResponse](t, s, q, v)
		want := []struct {
			name       string
			code       int16
			partitions int32
			replicas   int16
		}{{"a", 0, 3, 1}, {"b", 0, 2, 4}, {"twice", kerr.INVALID_REQUEST, -1, -1}, {"c", 0, 1, 1}}
		if len(r.Topics) != len(want) {
			t.Fatalf("%d answers", len(r.Topics))
		}
		for i, w := range want {
			got := r.Topics[i]
			if v < 5 {
				w.partitions, w.replicas = got.NumPartitions, got.ReplicationFactor
			}
			if got.Topic != w.name || got.ErrorCode != w.code || got.NumPartitions != w.partitions || got.ReplicationFactor != w.replicas {
				t.Errorf("answer %d is %+v, want %+v", i, got, w)
			}
			made, ok := b.Topic(w.name)
			if ok != (w.code == 0) || v >= 7 && got.TopicID != made.ID {
				t.Errorf("%s: there: %v, id %v and %v", w.name, ok, got.TopicID, made.ID)
			}
		}
		if v >= 5 {
			c := r.Topics[0].Configs
			if len(c) != 2 || *c[0].Value != "5" || c[0].Source != int8(kmsg.ConfigSourceDynamicTopicConfig) || c[1].Source != int8(kmsg.ConfigSourceDefaultConfig) {
				t.Errorf("settings %+v", c)
			}
		}
	})
}

func TestCreateTopicsErrors(t *testing.T) {
	b := newAdminBroker()
	s := serveAdmin(t, b, func(o *Options) { o.ClampReplicationFactor = true })
	q := createRequest(createTopic("would", 2, 3))
	q.ValidateOnly = true
	r := askAdmin[*kmsg.CreateTopicsResponse](t, s, q, 7)
	if got := r.Topics[0]; got.ErrorCode != 0 || got.NumPartitions != 2 || got.ReplicationFactor != 1 || got.TopicID != (TopicID{}) {
		t.Errorf("only validated, clamped: %+v", got)
	}
	if len(b.Topics()) != 0 {
		t.Error("a topic was made that was only to be validated")
	}
	null := createTopic("null", 1, 1)
	null.Configs = append(null.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: "retention.ms"})
	r = askAdmin[*kmsg.CreateTopicsResponse](t, s, createRequest(null), 7)
	if code, message := say(r.Topics[0].ErrorCode, r.Topics[0].ErrorMessage); code != kerr.INVALID_CONFIG || message == "" {
		t.Errorf("a setting without a value: %d %q", code, message)
	}
	q = createRequest(createTopic("slow", 1, 1), createTopic("fast", 1, 1))
	q.TimeoutMillis = 0
	r = askAdmin[*kmsg.CreateTopicsResponse](t, s, q, 7)
	if r.Topics[0].ErrorCode != kerr.REQUEST_TIMED_OUT || r.Topics[1].ErrorCode != 0 {
		t.Errorf("a topic that takes long: %+v", r.Topics)
	}
	closed := serveAdmin(t, b, func(o *Options) { o.Authorize = true })
	r = askAdmin[*kmsg.CreateTopicsResponse](t, closed, createRequest(createTopic("x", 1, 1)), 7)
	if r.Topics[0].ErrorCode != kerr.TOPIC_AUTHORIZATION_FAILED {
		t.Errorf("not allowed: %+v", r.Topics)
	}
}
