package broker

import (
	"testing"

	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/replication"
)

// A commit that has passed between nodes has its topics by id alone.
func TestTopicsOfCommits(t *testing.T) {
	now := newTopics([]replication.TopicState{testTopic("t", 3, 2)})
	for _, c := range []struct {
		version int16
		id      byte
		name    string
		code    int16
	}{{9, 1, "t", kerr.NONE}, {10, 3, "t", kerr.NONE}, {10, 1, "", kerr.UNKNOWN_TOPIC_ID}} {
		q := commitRequest("g", "t", 0, 1)
		if q.Version = c.version; c.version >= commitsByID {
			q.Topics[0].Topic = ""
		}
		q.Topics[0].TopicID = testTopic("", c.id, 0).ID
		if name, code := now.nameFor(q, 0); name != c.name || code != c.code {
			t.Errorf("version %d, id %d: %q, %d", c.version, c.id, name, code)
		}
	}
}
