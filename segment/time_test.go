package segment

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/vfs"
)

// TestTimes compares what is found by time, between any two offsets, with a look at
// all records.
func TestTimes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	l := createLog(t, logOptions(vfs.NewMem()))
	defer func() { must(t, l.Close(false)) }()
	f := newFeeder(t)
	var times []int64 // by offset
	limits := []int64{0}
	for i := range 150 {
		if i%40 == 0 {
			mustAppend(t, l, f.noop(uint64(i+1)))
		}
		if i%25 == 7 {
			mustAppend(t, l, f.void())
		}
		var b batch.Builder
		b.Reset(batch.BuilderOptions{})
		for range 1 + rng.IntN(4) {
			ts := rng.Int64N(400)
			b.Append(ts, nil, make([]byte, rng.IntN(120)), nil)
			times = append(times, ts)
		}
		data, err := b.Finish()
		must(t, err)
		data.SetBaseOffset(f.offset)
		data.SetLeaderEpoch(int32(f.term))
		if i%10 == 3 { // the records have the time of their append
			at := rng.Int64N(500)
			data.SetLogAppendTime(at)
			for o := f.offset; o < int64(len(times)); o++ {
				times[o] = at
			}
		}
		mustAppend(t, l, Entry{Index: f.index, Term: f.term, Kind: KindData, Data: data})
		f.index++
		f.offset = int64(len(times))
		limits = append(limits, f.offset)
	}
	if n := len(l.Segments()); n < 5 {
		t.Fatalf("%d segments", n)
	}
	find := func(from, limit int64, fits func(ts int64) bool) string {
		for o := from; o < limit; o++ {
			if fits(times[o]) {
				return fmt.Sprint(o, times[o], true)
			}
		}
		return fmt.Sprint(0, 0, false)
	}
	for range 4000 {
		limit := limits[rng.IntN(len(limits))]
		if rng.IntN(4) == 0 {
			limit = l.EndOffset()
		}
		from := rng.Int64N(limit + 1)
		if rng.IntN(3) == 0 {
			from = 0
		}
		latest, asked := int64(-1), rng.Int64N(500)
		for o := from; o < limit; o++ {
			latest = max(latest, times[o])
		}
		offset, ts, ok, err := l.MaxTimestamp(from, limit)
		want := find(from, limit, func(ts int64) bool { return ts == latest })
		if got := fmt.Sprint(offset, ts, ok); err != nil || got != want {
			t.Fatalf("latest of %d to %d: %s, %v, want %s", from, limit, got, err, want)
		}
		offset, ts, ok, err = l.OffsetForTime(asked, from, limit)
		want = find(from, limit, func(ts int64) bool { return ts >= asked })
		if got := fmt.Sprint(offset, ts, ok); err != nil || got != want {
			t.Fatalf("time %d from %d to %d: %s, %v, want %s", asked, from, limit, got, err, want)
		}
	}
}

// TestRetentionBelowOffset deletes what has only records below an offset.
func TestRetentionBelowOffset(t *testing.T) {
	l := createLog(t, logOptions(vfs.NewMem()))
	defer func() { must(t, l.Close(false)) }()
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1))
	for range 4 {
		mustAppend(t, l, f.data(10, 20))
		must(t, l.Roll())
	}
	for _, c := range []struct {
		below int64
		want  int
	}{{0, 0}, {9, 0}, {10, 1}, {19, 1}, {20, 2}, {40, 4}, {1000, 4}} {
		r := Retention{Bytes: -1, Age: -1, BelowOffset: c.below, Now: testTime}
		if _, n := l.Expired(r); n != c.want {
			t.Errorf("below %d: %d segments, want %d", c.below, n, c.want)
		}
	}
}
