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
