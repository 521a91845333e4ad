package broker

import (
	"errors"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/transport/kafka"
)

// What one node passes on is what the other one reads.
func TestForwarded(t *testing.T) {
	from := kafka.Client{ID: "client", Host: "10.0.0.1"}
	for key := range int16(100) {
		if !isForGroups(key) {
			continue
		}
		for version := int16(0); version <= kmsg.RequestForKey(key).MaxVersion(); version++ {
			q := kmsg.RequestForKey(key)
			q.SetVersion(version)
			b := appendForwarded(nil, from, q)
			who, got, err := readForwarded(b)
			if err != nil || who != from || got.Key() != key || got.GetVersion() != version || !reflect.DeepEqual(got.AppendTo(nil), q.AppendTo(nil)) {
				t.Errorf("%s version %d: %v, %+v, %v", kmsg.NameForKey(key), version, who, got, err)
			}
		}
	}
	for name, b := range map[string][]byte{
		"empty": {}, "layout": {9, 0, 11, 0, 1, 0, 0, 0, 0}, "produce": {1, 0, 0, 0, 1, 0, 0, 0, 0}, "version": {1, 0, 11, 0, 99, 0, 0, 0, 0}, "cut": {1, 0, 11, 0, 1, 0, 9},
	} {
		if _, _, err := readForwarded(b); !errors.Is(err, errForwarded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A heartbeat that says only what changed is sent once, since the answer may have had an
// assignment that a second one has not.
func TestHeartbeatIsNotAskedAgain(t *testing.T) {
	heartbeat := func(epoch int32, change func(*kmsg.ConsumerGroupHeartbeatRequest)) kmsg.Request {
		q := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		q.Group, q.MemberEpoch = "g", epoch
		change(q)
		return q
	}
	nothing := func(*kmsg.ConsumerGroupHeartbeatRequest) {}
	owned := func(q *kmsg.ConsumerGroupHeartbeatRequest) { q.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{} }
	everything := func(q *kmsg.ConsumerGroupHeartbeatRequest) {
		owned(q)
		q.RebalanceTimeoutMillis, q.SubscribedTopicNames = 1000, []string{"t"}
	}
	for name, c := range map[string]struct {
		q    kmsg.Request
		want int
	}{
		"nothing changed": {heartbeat(3, nothing), 1}, "what it has changed": {heartbeat(3, owned), 1}, "everything": {heartbeat(3, everything), 2},
		"join": {heartbeat(0, everything), 2}, "leave": {heartbeat(-1, nothing), 2}, "commit": {commitRequest("g", "t", 0, 1), 2},
	} {
		tries := 0
		_, err := again(t.Context(), func() (kmsg.Response, error) {
			if tries++; tries == 1 {
				return nil, unanswered(c.q, errNotNow)
			}
			return nil, nil
		})
		if tries != c.want || (err != nil) != (c.want == 1) {
			t.Errorf("%s: asked %d times, %v", name, tries, err)
		}
	}
}

// No bytes of another node do harm.
func FuzzForwarded(f *testing.F) {
	for key := range int16(100) {
		if isForGroups(key) {
			f.Add(appendForwarded(nil, kafka.Client{ID: "client", Host: "host"}, kmsg.RequestForKey(key)))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, q, err := readForwarded(b); err == nil && !isForGroups(q.Key()) {
			t.Errorf("key %d was read", q.Key())
		}
	})
}
