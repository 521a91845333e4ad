package segment

import (
	"fmt"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/vfs"
)

var testIdentity = Identity{
	Cluster:   [16]byte{1, 2, 3},
	Topic:     [16]byte{4, 5, 6},
	Partition: 7,
	Key:       Key{Shard: 8, Replica: 9},
}

// testTime is the clock of tests that do not set another one.
var testTime = time.UnixMilli(1_700_000_000_000)

// logOptions are options for small segments on fs.
func logOptions(fs vfs.FS) Options {
	return Options{FS: fs, Dir: "/log", Identity: testIdentity, Generation: 1,
		SegmentBytes: 2048, IndexIntervalBytes: 256, Now: func() time.Time { return testTime }}
}

// makeBatch builds a record batch of n records with a value of size bytes. Its
// record i has timestamp ts + i.
func makeBatch(tb tester, base int64, term uint64, n, size int, ts int64) batch.Batch {
	tb.Helper()
	var b batch.Builder
	b.Reset(batch.BuilderOptions{})
	value := make([]byte, size)
	for i := range value {
		value[i] = byte(base) + byte(i)
	}
	for i := range n {
		b.Append(ts+int64(i), fmt.Appendf(nil, "key-%d", base+int64(i)), value, nil)
	}
	out, err := b.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	out.SetBaseOffset(base)
	out.SetLeaderEpoch(int32(term))
	return out
}

// feeder makes entries that continue a log.
type feeder struct {
	tb     tester
	index  uint64
	term   uint64
	offset int64
}

func (f *feeder) noop(term uint64) Entry {
	f.term = term
	e := Entry{Index: f.index, Term: term, Kind: KindNoOp}
	f.index++
	return e
}

func (f *feeder) data(n, size int) Entry {
	e := Entry{Index: f.index, Term: f.term, Kind: KindData,
		Data: makeBatch(f.tb, f.offset, f.term, n, size, f.offset*10)}
	f.index++
	f.offset += int64(n)
	return e
}

// void is a batch that expects another offset than it finds.
func (f *feeder) void() Entry {
	e := Entry{Index: f.index, Term: f.term, Kind: KindData,
		Data: makeBatch(f.tb, f.offset+5, f.term, 1, 10, 0)}
	f.index++
	return e
}

func (f *feeder) config(payload string) Entry {
	e := Entry{Index: f.index, Term: f.term, Kind: KindConfigChange, Data: []byte(payload)}
	f.index++
	return e
}

func newFeeder(tb tester) *feeder { return &feeder{tb: tb, index: 1} }

func createLog(tb tester, o Options) *Log {
	tb.Helper()
	l, err := Create(o, Start{FirstIndex: 1})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func openLog(tb tester, o Options, h OpenHints) (*Log, Recovery) {
	tb.Helper()
	l, r, err := Open(o, h)
	if err != nil {
		tb.Fatal(err)
	}
	return l, r
}

func mustAppend(tb tester, l *Log, entries ...Entry) Appended {
	tb.Helper()
	a, err := l.Append(entries)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func must(tb tester, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// tester is what helpers need of a *testing.T, *testing.B or *rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}
