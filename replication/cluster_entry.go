package replication

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
)

// Entry is a small piece of what the whole cluster knows: users and access rules, say. The metadata holds it, and every node has it.
type Entry struct {
	Kind, Key string
	Value     []byte // nil: there is to be none
}

// The bounds of entries.
const (
	EntryValueMax     = 64 << 10 // bytes
	EntryKeyMax       = 1024     // bytes
	EntriesMax        = 10_000   // of one kind
	entryKindMax      = 64       // bytes
	entryKindsMax     = 64
	entriesAtOnceMax  = 4 << 20 // bytes of keys and values that change in one step
	entryOverheadSize = 128     // of a record, beside key and value
)

// entrySet is all entries of a kind. What was handed out is not changed any more.
type entrySet struct {
	all     map[string][]byte
	version uint64
	shared  atomic.Bool
}

type setEntriesRequest struct {
	Entries []wireEntry `json:"entries"`
}

// wireEntry is an Entry whose key need not be text.
type wireEntry struct {
	Kind  string `json:"kind"`
	Key   []byte `json:"key"`
	Value []byte `json:"value"` // null: none
}

// SetEntries changes entries, all of them or none. It returns when this node knows them. ErrInvalidConfig for a kind, key or value beyond the bounds,
// ErrTooLarge for more than can be changed at once.
func (c *Controller) SetEntries(ctx context.Context, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	q := setEntriesRequest{Entries: make([]wireEntry, len(entries))}
	for i, e := range entries {
		q.Entries[i] = wireEntry{e.Kind, []byte(e.Key), e.Value}
	}
	_, err := ask(ctx, c, "set-entries", q, (*Controller).setEntries)
	return err
}

// Entries returns the entries of a kind by key, as this node knows them. Nobody may change what is returned.
func (c *Controller) Entries(kind string) map[string][]byte {
	c.mu.RLock()
	defer c.mu.RUnlock()
	set := c.mu.entries[kind]
	if set == nil {
		return nil
	}
	set.shared.Store(true)
	return set.all
}

// EntriesVersion is another number after every change of the kind's entries, while the node is open.
func (c *Controller) EntriesVersion(kind string) uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if set := c.mu.entries[kind]; set != nil {
		return set.version
	}
	return 0
}

func (c *Controller) setEntries(ctx context.Context, q setEntriesRequest) (nothing, error) {
	if err := validEntries(q.Entries); err != nil {
		return nothing{}, err
	}
	return nothing{}, c.decide(ctx, func(ctx context.Context) error {
		if err := c.countEntries(q.Entries); err != nil {
			return err
		}
		records := make([]metadataRecord, len(q.Entries))
		for i, e := range q.Entries {
			records[i] = entryRecord(e)
		}
		return c.write(ctx, records...)
	})
}

func validEntries(list []wireEntry) error {
	size := 0
	for _, e := range list {
		switch {
		case e.Kind == "" || len(e.Kind) > entryKindMax:
			return fmt.Errorf("%w: an entry's kind of %d bytes: 1 to %d are possible", ErrInvalidConfig, len(e.Kind), entryKindMax)
		case len(e.Key) > EntryKeyMax:
			return fmt.Errorf("%w: a key of %d bytes for an entry of kind %q: at most %d are possible", ErrInvalidConfig, len(e.Key), e.Kind, EntryKeyMax)
		case len(e.Value) > EntryValueMax:
			return fmt.Errorf("%w: entry %q of kind %q has %d bytes: at most %d are possible", ErrInvalidConfig, e.Key, e.Kind, len(e.Value), EntryValueMax)
		}
		size += len(e.Key) + len(e.Value) + entryOverheadSize
	}
	if size > entriesAtOnceMax {
		return fmt.Errorf("%w: %d entries with %d bytes, at most %d can be changed at once: do it in parts", ErrTooLarge, len(list), size, entriesAtOnceMax)
	}
	return nil
}

// countEntries refuses what would make too many entries.
func (c *Controller) countEntries(list []wireEntry) error {
	type name struct{ kind, key string }
	there := map[name]bool{}
	c.mu.RLock()
	defer c.mu.RUnlock()
	kinds, more := map[string]bool{}, map[string]int{}
	for kind := range c.mu.entries {
		kinds[kind] = true
	}
	for _, e := range list {
		n := name{e.Kind, string(e.Key)}
		before, changed := there[n]
		if set := c.mu.entries[e.Kind]; set != nil && !changed {
			_, before = set.all[n.key]
		}
		after := e.Value != nil
		there[n] = after
		switch {
		case after && !before:
			more[e.Kind]++
		case before && !after:
			more[e.Kind]--
		}
		kinds[e.Kind] = true
	}
	if len(kinds) > entryKindsMax {
		return fmt.Errorf("%w: entries of %d kinds, at most %d are possible", ErrInvalidConfig, len(kinds), entryKindsMax)
	}
	for kind, n := range more {
		if set := c.mu.entries[kind]; set != nil {
			n += len(set.all)
		}
		if n > EntriesMax && more[kind] > 0 {
			return fmt.Errorf("%w: %d entries of kind %q, at most %d are possible", ErrInvalidConfig, n, kind, EntriesMax)
		}
	}
	return nil
}

func entryRecord(e wireEntry) metadataRecord {
	return metadataRecord{key: fmt.Sprintf("%s/%s/%s", kindEntry, e.Kind, e.Key), val: metadataValue{
		Version: metadataVersion, Kind: kindEntry, EntryKind: e.Kind, EntryKey: e.Key, Value: e.Value, Deleted: e.Value == nil,
	}}
}

func (v *view) applyEntry(m *metadataValue) {
	set := v.entries[m.EntryKind]
	if set == nil {
		set = &entrySet{all: map[string][]byte{}}
		v.entries[m.EntryKind] = set
	}
	if set.shared.Load() {
		set.all = maps.Clone(set.all)
		set.shared.Store(false)
	}
	set.version++
	if m.Deleted {
		delete(set.all, string(m.EntryKey))
		return
	}
	if m.Value == nil { // left out in the record, as an empty one is
		m.Value = []byte{}
	}
	set.all[string(m.EntryKey)] = m.Value
}
