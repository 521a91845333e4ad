package replication

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
)

// SyncStats sums up the fdatasyncs of a node since it was opened: those of segments, slots and the journal.
type SyncStats struct {
	Count    int64
	Failures int64
	Total    time.Duration // summed up; several run at the same time
	P50, P99 time.Duration // upper bounds: a power of two of microseconds
	Max      time.Duration
}

// syncTimes counts in buckets of powers of two microseconds.
type syncTimes struct {
	count, failures, total, max atomic.Int64
	buckets                     [syncBuckets]atomic.Int64
}

const syncBuckets = 32

func (s *syncTimes) note(d time.Duration, err error) {
	s.count.Add(1)
	if err != nil {
		s.failures.Add(1)
	}
	s.total.Add(int64(d))
	for old := s.max.Load(); int64(d) > old && !s.max.CompareAndSwap(old, int64(d)); old = s.max.Load() {
	}
	s.buckets[min(bits.Len64(uint64(max(d.Microseconds(), 0))), syncBuckets-1)].Add(1)
}

func (s *syncTimes) stats() SyncStats {
	out := SyncStats{Count: s.count.Load(), Failures: s.failures.Load(), Total: time.Duration(s.total.Load()), Max: time.Duration(s.max.Load())}
	out.P50, out.P99 = s.quantile(out.Count, 50), s.quantile(out.Count, 99)
	return out
}

// quantile returns the upper bound of the bucket in which the given percentage is reached.
func (s *syncTimes) quantile(count, percent int64) time.Duration {
	seen := int64(0)
	for i := range s.buckets {
		seen += s.buckets[i].Load()
		if seen > 0 && seen*100 >= count*percent {
			return time.Duration(1<<i) * time.Microsecond
		}
	}
	return 0
}

// timedFS measures the syncs of the files that are written through it.
type timedFS struct {
	vfs.FS
	times *syncTimes
}

// Create implements vfs.FS.
func (f timedFS) Create(name string) (vfs.File, error) { return f.wrap(f.FS.Create(name)) }

// Open implements vfs.FS.
func (f timedFS) Open(name string) (vfs.File, error) { return f.wrap(f.FS.Open(name)) }

func (f timedFS) wrap(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &timedFile{file, f.times}, nil
}

type timedFile struct {
	vfs.File
	times *syncTimes
}

// SyncData implements vfs.File.
func (f *timedFile) SyncData() error {
	start := time.Now()
	err := f.File.SyncData()
	f.times.note(time.Since(start), err)
	if err != nil {
		return fmt.Errorf("%w: %w", errSync, err)
	}
	return nil
}

// errSync marks what a failed sync returned: the system may have dropped the bytes, whatever a later one says.
var errSync = errors.New("replication: sync failed")

// JournalStats returns the journal's counters; ok is false when there is none.
func (h *Host) JournalStats() (segment.JournalStats, bool) {
	if h.db.journal == nil {
		return segment.JournalStats{}, false
	}
	return h.db.journal.Stats(), true
}

// SyncStats sums up the node's fdatasyncs.
func (h *Host) SyncStats() SyncStats { return h.syncs.stats() }
