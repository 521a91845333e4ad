package history

import (
	"maps"
	"slices"
)

// Replica is what one replica of a partition was found to contain.
type Replica struct {
	// Name says where it is.
	Name string
	// Start and End are its first offset and that after the last committed one.
	Start, End int64
	// Records are the values by offset.
	Records map[int64]Value
	// Ranges have checksums of the bytes, in order and without gaps.
	Ranges []Range
}

// Range is a part of a log with the checksum of its bytes.
type Range struct {
	First, Next int64
	Sum         uint64
}

// CheckReplicas holds all replicas of a partition, at rest, against the history
// and against each other.
func (h *History) CheckReplicas(p Partition, replicas []Replica) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(replicas) == 0 {
		h.violateLocked("%v: no replica is there", p)
		return
	}
	for i := range replicas {
		h.checkReplicaLocked(p, &replicas[i])
		h.compareLocked(p, &replicas[0], &replicas[i])
	}
}

// checkReplicaLocked holds one replica against the history.
func (h *History) checkReplicaLocked(p Partition, r *Replica) {
	part := h.partitionLocked(p)
	last, at := map[string]int64{}, map[string]int64{}
	for offset := r.Start; offset < r.End; offset++ {
		v, ok := r.Records[offset]
		if !ok {
			h.violateLocked("%v: %s has no record at offset %d of %d to %d", p, r.Name, offset, r.Start, r.End)
			continue
		}
		h.learnLocked(p, offset, v, "found at "+r.Name)
		if before, ok := last[v.Writer]; ok && v.N <= before {
			h.violateLocked("%v: %s has %v at offset %d, after %d of the same writer at %d", p, r.Name, v, offset, before, at[v.Writer])
		}
		last[v.Writer], at[v.Writer] = v.N, offset
	}
	for _, offset := range slices.Sorted(maps.Keys(part.records)) {
		if offset >= r.End {
			h.violateLocked("%v: %s ends at %d; %v is known at offset %d (acknowledged: %v)",
				p, r.Name, r.End, part.records[offset], offset, part.acked[offset])
		}
	}
}

// compareLocked holds the bytes of two replicas against each other, where both
// have them.
func (h *History) compareLocked(p Partition, a, b *Replica) {
	if a.End != b.End {
		h.violateLocked("%v: %s ends at %d, %s at %d", p, a.Name, a.End, b.Name, b.End)
	}
	from := max(a.Start, b.Start)
	x, y := rangesFrom(a.Ranges, from), rangesFrom(b.Ranges, from)
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			h.violateLocked("%v: the bytes of %s and %s differ: %+v and %+v", p, a.Name, b.Name, x[i], y[i])
			return
		}
	}
	if len(x) != len(y) {
		h.violateLocked("%v: %s has %d ranges from offset %d on, %s has %d", p, a.Name, len(x), from, b.Name, len(y))
	}
}

// rangesFrom are those that begin at offset or later.
func rangesFrom(all []Range, offset int64) []Range {
	i := slices.IndexFunc(all, func(r Range) bool { return r.First >= offset })
	if i < 0 {
		return nil
	}
	return all[i:]
}
