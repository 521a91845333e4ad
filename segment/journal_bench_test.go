package segment

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// noSync is a replica that costs nothing.
type noSync struct{}

func (noSync) SyncJournaled() error { return nil }

// BenchmarkCommit measures the journal alone: copy, one write, one fdatasync for all who wait.
func BenchmarkCommit(b *testing.B) {
	for _, c := range []struct{ writers, size int }{{1, 1024}, {1, 16384}, {8, 1024}, {64, 1024}, {64, 16384}, {256, 512}} {
		b.Run(fmt.Sprintf("writers=%d/size=%d", c.writers, c.size), func(b *testing.B) {
			j, _, err := OpenJournal(JournalOptions{FS: vfs.OS, Path: filepath.Join(b.TempDir(), "journal")}, nil)
			if err != nil {
				b.Fatal(err)
			}
			data := make([]byte, c.size)
			var left atomic.Int64
			left.Store(int64(b.N))
			var wait sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for i := range c.writers {
				wait.Go(func() {
					ws := []Write{{Key: Key{uint64(i), 1}, File: formatJournalFile(0), Data: [][]byte{data}, Size: c.size}}
					syncers := []Syncer{noSync{}}
					for left.Add(-1) >= 0 {
						if err := j.Commit(ws, syncers); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wait.Wait()
			b.StopTimer()
			s := j.Stats()
			b.ReportMetric(float64(s.Records)/b.Elapsed().Seconds(), "commits/s")
			b.ReportMetric(float64(s.Records)/float64(s.Groups), "commits/group")
			if err := j.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkCommitMem is the same without a disk: what the journal itself costs.
func BenchmarkCommitMem(b *testing.B) {
	fsys := vfs.NewMem()
	j, _, err := OpenJournal(JournalOptions{FS: fsys, Path: "/journal", HalfBytes: 1 << 20}, nil)
	if err != nil {
		b.Fatal(err)
	}
	ws := []Write{{File: formatJournalFile(0), Data: [][]byte{make([]byte, 1024)}, Size: 1024}}
	syncers := []Syncer{noSync{}}
	b.ReportAllocs()
	for b.Loop() {
		if err := j.Commit(ws, syncers); err != nil {
			b.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
}
