package segment

import (
	"fmt"
	"os"
	"testing"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/vfs"
)

// benchDir is a folder in memory when there is one, so that the disk is not
// measured.
func benchDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "billet")
	if err != nil {
		return b.TempDir()
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func benchLog(b *testing.B) (*Log, Options) {
	b.Helper()
	o := Options{FS: vfs.OS, Dir: benchDir(b), Identity: testIdentity, Generation: 1, LossyTail: true}
	l := createLog(b, o)
	b.Cleanup(func() { _ = l.Close(false) })
	mustAppend(b, l, Entry{Index: 1, Term: 1, Kind: KindNoOp})
	return l, o
}

// appendBatches appends n batches of about size bytes, keeping the log below
// maxSize when that is above 0.
func appendBatches(b *testing.B, l *Log, n, size int, maxSize int64) {
	data := makeBatch(b, 0, 1, 1, size-80, 1000)
	entries := make([]Entry, 1)
	for i := range n {
		batch.Batch(data).SetBaseOffset(l.EndOffset())
		entries[0] = Entry{Index: l.LastIndex() + 1, Term: 1, Kind: KindData, Data: data}
		if _, err := l.Append(entries); err != nil {
			b.Fatal(err)
		}
		if i%64 == 63 {
			l.Forget(l.LastIndex())
			if maxSize > 0 && l.Size() > maxSize {
				if _, err := l.DeleteBelow(l.EndOffset(), l.LastIndex()); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}

func BenchmarkLogAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			l, _ := benchLog(b)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			appendBatches(b, l, b.N, size, 512<<20)
		})
	}
}

// BenchmarkLogPwrite is what the system call alone costs, to compare with.
func BenchmarkLogPwrite(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			f, err := vfs.OS.Create(benchDir(b) + "/file")
			must(b, err)
			defer f.Close()
			data := make([]byte, size)
			b.SetBytes(int64(size))
			b.ResetTimer()
			pos := int64(0)
			for range b.N {
				if _, err := f.WritevAt([][]byte{data}, pos); err != nil {
					b.Fatal(err)
				}
				if pos += int64(size); pos > 512<<20 {
					must(b, f.Truncate(0))
					pos = 0
				}
			}
		})
	}
}

func BenchmarkLogFrame(b *testing.B) {
	for _, where := range []string{"recent", "disk"} {
		b.Run("where="+where, func(b *testing.B) {
			l, _ := benchLog(b)
			appendBatches(b, l, 50, 1024, 0)
			if where == "disk" {
				l.Forget(l.LastIndex())
			}
			last := l.LastIndex()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if _, err := l.Frame(2 + uint64(i)%(last-1)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLogRead(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		for _, maxBytes := range []int{64 << 10, 256 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("batch=%d/read=%d", size, maxBytes), func(b *testing.B) {
				l, _ := benchLog(b)
				appendBatches(b, l, (128<<20)/size, size, 0)
				c := l.NewCursor()
				defer c.Close()
				var dst []byte
				offset, end, bytes := int64(0), l.EndOffset(), int64(0)
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					var err error
					if dst, err = c.Read(dst[:0], offset, end, maxBytes); err != nil {
						b.Fatal(err)
					}
					bytes += int64(len(dst))
					if offset = c.at.offset; offset == end {
						offset = 0
					}
				}
				b.SetBytes(bytes / int64(b.N))
			})
		}
	}
}

func BenchmarkLogEntries(b *testing.B) {
	l, _ := benchLog(b)
	appendBatches(b, l, 1000, 16<<10, 0)
	var dst []Entry
	b.SetBytes(16 * 16 << 10)
	b.ReportAllocs()
	for i := range b.N {
		low := 2 + uint64(i*16)%900
		var err error
		if dst, err = l.Entries(dst[:0], low, low+16, 1<<30); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLogOpen(b *testing.B) {
	for _, segments := range []int{1, 16} {
		b.Run(fmt.Sprintf("segments=%d", segments), func(b *testing.B) {
			l, o := benchLog(b)
			for range segments {
				appendBatches(b, l, 128, 64<<10, 0)
				must(b, l.Roll())
			}
			appendBatches(b, l, 128, 64<<10, 0)
			must(b, l.SaveCheckpoint(Checkpoint{Index: l.LastIndex(), Term: 1, Offset: l.EndOffset()}, true))
			last := l.LastIndex()
			must(b, l.Close(true))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				l, r, err := Open(o, OpenHints{DurableIndex: last})
				if err != nil || r.Frames != 0 {
					b.Fatal(r, err)
				}
				must(b, l.Close(false))
			}
		})
	}
}

func BenchmarkLogScan(b *testing.B) {
	l, o := benchLog(b)
	appendBatches(b, l, 2000, 64<<10, 0)
	must(b, l.Close(true))
	b.SetBytes(2000 * 64 << 10)
	for range b.N {
		l, _, err := Open(o, OpenHints{})
		must(b, err)
		must(b, l.Close(false))
	}
}
