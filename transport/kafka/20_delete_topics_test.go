package kafka

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

func TestDeleteTopicsVersions(t *testing.T) {
	versionsOf(t, kmsg.DeleteTopics, func(t *testing.T, v int16) {
		b := newAdminBroker()
		s := serveAdmin(t, b)
		askAdmin[*kmsg.CreateTopicsResponse](t, s, createRequest(createTopic("a", 1, 1), createTopic("b", 1, 1), createTopic("keep", 1, 1)), 7)
		q := kmsg.NewPtrDeleteTopicsRequest()
		names := []string{"b", "none", "keep", "a", "keep"}
		q.TopicNames = names
		for i := range names {
			q.Topics = append(q.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &names[i]})
		}
		r := askAdmin[*kmsg.DeleteTopicsResponse](t, s, q, v)
		var codes []int16
		for i, got := range r.Topics {
			if *got.Topic != names[i] {
				t.Errorf("answer %d is about %s", i, *got.Topic)
			}
			codes = append(codes, got.ErrorCode)
		}
		if want := []int16{0, kerr.UNKNOWN_TOPIC_OR_PARTITION, kerr.INVALID_REQUEST, 0}; !slices.Equal(codes, want) {
			t.Errorf("codes %v, want %v", codes, want)
		}
		if left := b.Topics(); len(left) != 1 || left[0].Name != "keep" {
			t.Errorf("left is %v", left)
		}
	})
}

func TestDeleteTopicsByID(t *testing.T) {
	b := newAdminBroker()
	s := serveAdmin(t, b)
	for _, name := range []string{"a", "b", "c", "d"} {
		askAdmin[*kmsg.CreateTopicsResponse](t, s, createRequest(createTopic(name, 1, 1)), 7)
	}
	id := func(name string) TopicID {
		topic, _ := b.Topic(name)
		return topic.ID
	}
	name, other := "b", "d"
	a, d := id("a"), id("d")
	topics := []kmsg.DeleteTopicsRequestTopic{
		{TopicID: a}, {}, {Topic: &name, TopicID: id("b")}, {TopicID: TopicID{99}}, {TopicID: id("c")}, {TopicID: id("c")}, {Topic: &other}, {TopicID: d},
	}
	q := kmsg.NewPtrDeleteTopicsRequest()
	q.Topics = topics
	r := askAdmin[*kmsg.DeleteTopicsResponse](t, s, q, 6)
	want := []int16{0, kerr.INVALID_REQUEST, kerr.INVALID_REQUEST, kerr.UNKNOWN_TOPIC_ID, kerr.INVALID_REQUEST, kerr.INVALID_REQUEST, 0}
	for i, w := range want {
		if r.Topics[i].ErrorCode != w {
			t.Errorf("answer %d is %+v, want code %d", i, r.Topics[i], w)
		}
	}
	if first, last := r.Topics[0], r.Topics[6]; *first.Topic != "a" || first.TopicID != a || *last.Topic != "d" || last.TopicID != d {
		t.Errorf("names and ids: %+v %+v", first, last)
	}
	if r.Topics[3].Topic != nil {
		t.Errorf("an unknown id has the name %q", *r.Topics[3].Topic)
	}
	if left := b.Topics(); len(left) != 2 {
		t.Errorf("left is %v", left)
	}
	closed := serveAdmin(t, b, func(o *Options) { o.Authorize = true })
	q = kmsg.NewPtrDeleteTopicsRequest()
	q.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: id("c")}, {Topic: &name}}
	r = askAdmin[*kmsg.DeleteTopicsResponse](t, closed, q, 6)
	for _, got := range r.Topics {
		if got.ErrorCode != kerr.TOPIC_AUTHORIZATION_FAILED {
			t.Errorf("not allowed: %+v", got)
		}
	}
	if r.Topics[0].Topic != nil {
		t.Error("who may not see a topic is told its name")
	}
}
