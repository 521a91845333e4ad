package group

import (
	"cmp"
	"slices"
)

// TopicID is a topic's identity, which differs between a topic and another one of
// the same name that came after it.
type TopicID = [16]byte

// Topic is what coordinators know of a topic.
type Topic struct {
	Name       string
	ID         TopicID
	Partitions int32
}

// Topics is what topics there are. It never changes, so cores can share it.
type Topics struct {
	sorted []Topic // by name
	byName map[string]*Topic
	byID   map[TopicID]*Topic
}

// NewTopics copies what it is given.
func NewTopics(topics []Topic) *Topics {
	t := &Topics{
		sorted: slices.Clone(topics),
		byName: make(map[string]*Topic, len(topics)),
		byID:   make(map[TopicID]*Topic, len(topics)),
	}
	slices.SortFunc(t.sorted, func(a, b Topic) int { return cmp.Compare(a.Name, b.Name) })
	for i := range t.sorted {
		one := &t.sorted[i]
		t.byName[one.Name] = one
		t.byID[one.ID] = one
	}
	return t
}

// ByID returns the topic that has an id.
func (t *Topics) ByID(id TopicID) (Topic, bool) {
	if one := t.byID[id]; one != nil {
		return *one, true
	}
	return Topic{}, false
}
