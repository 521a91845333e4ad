// Package history notes what a replicated log told its users, from many goroutines
// at once, and holds against it what the log is found to contain.
//
// What it knows of a partition is the record at each offset. Whoever learns of one,
// by an acknowledgement, by reading, or by looking into a replica, must have
// learned the same. What does not fit is a violation; the first ones are kept.
package history

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
)

// Partition names a partition.
type Partition struct {
	Topic  string
	Number int32
}

// String is topic and number.
func (p Partition) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Number) }

// Value is a record: the writer's n-th, counted from 0 over all partitions. No
// writer uses a number twice.
type Value struct {
	Writer string
	N      int64
}

// String is writer and number.
func (v Value) String() string { return fmt.Sprintf("%s/%d", v.Writer, v.N) }

// violationsMax bounds the violations that are kept.
const violationsMax = 20

// History is what is known. It is safe for concurrent use.
type History struct {
	mu         sync.Mutex
	partitions map[Partition]*partition
	sent       map[string]int64 // how many values each writer sent
	refused    map[Value]error
	violations []error
	dropped    int
	acked      int
}

// partition is what is known of one.
type partition struct {
	records map[int64]Value
	offsets map[Value]int64
	acked   map[int64]bool
	leaders map[int32]int32 // by epoch
}

// New returns an empty history.
func New() *History {
	return &History{partitions: map[Partition]*partition{}, sent: map[string]int64{}, refused: map[Value]error{}}
}

func (h *History) partitionLocked(p Partition) *partition {
	part := h.partitions[p]
	if part == nil {
		part = &partition{map[int64]Value{}, map[Value]int64{}, map[int64]bool{}, map[int32]int32{}}
		h.partitions[p] = part
	}
	return part
}

// violateLocked notes a violation.
func (h *History) violateLocked(format string, args ...any) {
	if len(h.violations) == violationsMax {
		h.dropped++
		return
	}
	h.violations = append(h.violations, fmt.Errorf(format, args...))
}

// Violate notes a violation that the caller found.
func (h *History) Violate(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violateLocked(format, args...)
}

// Err returns the violations, or nil.
func (h *History) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Clone(h.violations)
	if h.dropped > 0 {
		all = append(all, fmt.Errorf("and %d more violations", h.dropped))
	}
	return errors.Join(all...)
}

// Acknowledged is how many values were acknowledged.
func (h *History) Acknowledged() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.acked
}

// Send gives a writer its next value.
func (h *History) Send(writer string) Value {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.sent[writer]
	h.sent[writer]++
	return Value{writer, n}
}

// Acknowledge notes that a value was said to be stored for good.
func (h *History) Acknowledge(p Partition, offset int64, v Value) {
	h.mu.Lock()
	defer h.mu.Unlock()
	part := h.partitionLocked(p)
	if part.acked[offset] {
		h.violateLocked("%v: offset %d was acknowledged a second time, for %v", p, offset, v)
	}
	part.acked[offset] = true
	h.acked++
	h.learnLocked(p, offset, v, "acknowledged")
}

// Expect allows all values of a writer that sends without telling.
func (h *History) Expect(writer string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent[writer] = math.MaxInt64
}

// Refuse notes that a value was said not to be stored, for certain.
func (h *History) Refuse(v Value, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused[v] = why
}

// learnLocked takes what is at an offset and compares it with what is known.
func (h *History) learnLocked(p Partition, offset int64, v Value, how string) {
	part := h.partitionLocked(p)
	if known, ok := part.records[offset]; ok {
		if known != v {
			h.violateLocked("%v: offset %d: %v was %s where %v is known (acknowledged: %v)", p, offset, v, how, known, part.acked[offset])
		}
		return
	}
	if other, ok := part.offsets[v]; ok {
		h.violateLocked("%v: %v was %s at offset %d and is at %d, too", p, v, how, offset, other)
	}
	if v.N < 0 || v.N >= h.sent[v.Writer] {
		h.violateLocked("%v: offset %d: %v was %s, which nobody sent", p, offset, v, how)
	}
	if why, ok := h.refused[v]; ok {
		h.violateLocked("%v: offset %d: %v was %s, which was refused for certain: %w", p, offset, v, how, why)
	}
	part.records[offset], part.offsets[v] = v, offset
}

// Lead notes that a node was seen to take records of a partition in an epoch.
func (h *History) Lead(p Partition, epoch, node int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	part := h.partitionLocked(p)
	if other, ok := part.leaders[epoch]; ok && other != node {
		h.violateLocked("%v: nodes %d and %d lead in epoch %d", p, other, node, epoch)
	}
	part.leaders[epoch] = node
}

// Known is the offset after the highest record that is known of a partition.
func (h *History) Known(p Partition) (end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for offset := range h.partitionLocked(p).records {
		end = max(end, offset+1)
	}
	return end
}
