package billet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

// damageRecords is what the log of these tests holds, per partition.
const damageRecords = 6

func damageConfig() Config { return Config{Dir: "/log", DiskReserve: -1, JournalBytes: 1 << 20} }

// damageLog makes a small log: two partitions, several batches, a reopen. It is closed, or left as a killed process leaves it.
func damageLog(t *testing.T, clean bool) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	ctx := testContext(t)
	l, err := open(damageConfig(), seams{fs: mem})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.CreateTopic(ctx, Topic{Name: "t", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	for i := range damageRecords {
		if i == damageRecords/2 {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if l, err = open(damageConfig(), seams{fs: mem}); err != nil {
				t.Fatal(err)
			}
		}
		for p := range 2 {
			at, err := l.Produce(ctx, Record{Topic: "t", Key: damageKey(p), Value: fmt.Appendf(nil, "value %d of %d", i, p)})
			if err != nil || at.Offset != int64(i) {
				t.Fatalf("produce: %+v, %v", at, err)
			}
		}
	}
	left := mem
	if !clean {
		left = mem.CrashClone(vfs.CrashOptions{KeepUnsynced: 1})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return left
}

// damageKey is a key of each of two partitions.
func damageKey(p int) []byte {
	for i := 0; ; i++ {
		if k := fmt.Appendf(nil, "%d", i); PartitionForKey(k, 2) == p {
			return k
		}
	}
}

// files lists all files below dir.
func files(t *testing.T, fs vfs.FS, dir string) []string {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, name := range names {
		name = path.Join(dir, name)
		info, err := fs.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir {
			out = append(out, files(t, fs, name)...)
		} else {
			out = append(out, name)
		}
	}
	return out
}

// verdictOf opens the log and reads all of it. It returns the first error that the log reported, or fails the test when the log
// says that all is well and something is missing or wrong.
func verdictOf(t *testing.T, what string, mem *vfs.Mem) (reported error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l, err := open(damageConfig(), seams{fs: mem})
	if err != nil {
		return err
	}
	defer func() {
		if err := l.Close(); err != nil && reported == nil {
			reported = err
		}
	}()
	for n := range int32(2) {
		p, err := l.Partition(ctx, "t", n)
		if err != nil {
			return err
		}
		if err := p.Info().Err; err != nil {
			return err
		}
		if hw := p.HighWatermark(); hw != damageRecords {
			t.Fatalf("%s: partition %d ends at %d, %d records were acknowledged, and no error", what, n, hw, damageRecords)
		}
		for offset := int64(0); offset < damageRecords; {
			records, err := p.Read(ctx, offset, 1<<20)
			if err != nil {
				return err
			}
			if len(records) == 0 {
				t.Fatalf("%s: partition %d offset %d of %d: nothing is read and no error", what, n, offset, damageRecords)
			}
			for _, r := range records {
				if want := fmt.Sprintf("value %d of %d", offset, n); string(r.Value) != want || r.Offset != offset || string(r.Key) != string(damageKey(int(n))) {
					t.Fatalf("%s: partition %d offset %d holds key %q value %q at %d, want %q", what, n, offset, r.Key, r.Value, r.Offset, want)
				}
				offset++
			}
		}
	}
	return nil
}

// explains says whether an error tells of damage rather than of anything else.
func explains(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrQuarantined) || errors.Is(err, ErrForeignDir)
}

// Every byte of every file of a small log is flipped, one at a time. Opening or reading reports the damage, or it was only in a cache or a
// place that no longer counts; wrong records are never served and none is silently missing.
func TestEveryByteFlipped(t *testing.T) {
	for _, clean := range []bool{true, false} {
		base := damageLog(t, clean)
		if err := verdictOf(t, "undamaged", base.CrashClone(vfs.CrashOptions{KeepUnsynced: 1})); err != nil {
			t.Fatal(err)
		}
		for _, name := range files(t, base, "/log") {
			data, err := vfs.ReadFile(base, name)
			if err != nil {
				t.Fatal(err)
			}
			reported := 0
			for _, i := range damagePositions(len(data), name) {
				mem := base.CrashClone(vfs.CrashOptions{KeepUnsynced: 1})
				overwrite(t, mem, name, int64(i), data[i]^0x40)
				what := fmt.Sprintf("clean=%v %s byte %d flipped", clean, name, i)
				if err := verdictOf(t, what, mem); err != nil {
					if !explains(err) {
						t.Fatalf("%s: %v", what, err)
					}
					reported++
				}
			}
			t.Logf("clean=%v %s: %d bytes, %d flips reported", clean, name, len(data), reported)
		}
	}
}

// Every file of a cleanly closed small log is cut at every length.
func TestEveryLengthCut(t *testing.T) {
	base := damageLog(t, true)
	for _, name := range files(t, base, "/log") {
		data, err := vfs.ReadFile(base, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range damagePositions(len(data), name) {
			mem := base.CrashClone(vfs.CrashOptions{KeepUnsynced: 1})
			f, err := mem.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(f.Truncate(int64(i)), f.Close()); err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("%s cut at %d", name, i)
			if err := verdictOf(t, what, mem); err != nil && !explains(err) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
}

// damagePositions is every byte of a file; of the journal, which is large and mostly empty, its beginning and a sample; and a sample of all
// when the slow tests are not asked for.
func damagePositions(size int, name string) []int {
	step := 1
	if os.Getenv("BILLET_SLOW") == "" {
		step = 101
		if testing.Short() {
			step = 401
		}
	}
	var out []int
	for i := 0; i < size; i += step {
		if path.Base(name) == "journal" && i > 8<<10 {
			i += 509 * step
		}
		if path.Base(name) == "raft" && i > 2<<10 && i%(16<<10) > 2<<10 {
			i += 97 * step
		}
		if i < size {
			out = append(out, i)
		}
	}
	return out
}

func overwrite(t *testing.T, mem *vfs.Mem, name string, at int64, b byte) {
	t.Helper()
	f, err := mem.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{b}, at); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.SyncData(), f.Close()); err != nil {
		t.Fatal(err)
	}
}
