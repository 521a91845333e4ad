package broker

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/group"
	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/replication"
)

// catalog is what a view of the topics is made from.
type catalog interface {
	Topics() []replication.TopicState
	Changed() <-chan struct{}
}

// topicsView has the topics as coordinators want them. All share one.
type topicsView struct {
	catalog catalog

	mu struct {
		sync.Mutex
		changed <-chan struct{} // since when the snapshot may be old
		now     *topics
	}
}

// topics are those of one moment.
type topics struct {
	all    *group.Topics
	byName map[string]group.Topic
}

func newTopicsView(c catalog) *topicsView { return &topicsView{catalog: c} }

// get returns the topics as this node knows them now. While they are the same, so is
// what it returns.
func (v *topicsView) get() *topics {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.now != nil {
		select {
		case <-v.mu.changed:
		default:
			return v.mu.now
		}
	}
	v.mu.changed = v.catalog.Changed()
	if t := newTopics(v.catalog.Topics()); !t.same(v.mu.now) {
		v.mu.now = t
	}
	return v.mu.now
}

func newTopics(states []replication.TopicState) *topics {
	list := make([]group.Topic, 0, len(states))
	t := &topics{byName: make(map[string]group.Topic, len(states))}
	for i := range states {
		one := group.Topic{Name: states[i].Name, ID: states[i].ID, Partitions: int32(len(states[i].Partitions))}
		list = append(list, one)
		t.byName[one.Name] = one
	}
	t.all = group.NewTopics(list)
	return t
}

func (t *topics) same(other *topics) bool {
	if other == nil || len(t.byName) != len(other.byName) {
		return false
	}
	for name, one := range t.byName {
		if other.byName[name] != one {
			return false
		}
	}
	return true
}

// deletedSince lists the topics of an earlier moment that are there no more. Another one
// may have their name.
func (t *topics) deletedSince(earlier *topics) (names []string) {
	if t == earlier {
		return nil
	}
	for name, one := range earlier.byName {
		if t.byName[name].ID != one.ID {
			names = append(names, name)
		}
	}
	return names
}

// commitsByID is the version from which commits have topics by id: another topic of the
// same name is not meant.
const commitsByID = 10

// nameFor finds the name of a topic that offsets are committed for.
func (t *topics) nameFor(q *kmsg.OffsetCommitRequest, i int) (name string, code int16) {
	if q.Version < commitsByID {
		return q.Topics[i].Topic, kerr.NONE
	}
	if one, ok := t.all.ByID(q.Topics[i].TopicID); ok {
		return one.Name, kerr.NONE
	}
	return "", kerr.UNKNOWN_TOPIC_ID
}

// has tells whether there is such a partition.
func (t *topics) has(name string, partition int32) bool {
	return partition >= 0 && partition < t.byName[name].Partitions
}
