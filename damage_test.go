package billet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"sync/atomic"
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

// verdictOf opens the log and reads all of it. reported is the first error that the log told of; wrong says that the log claims that all is well and
// something is missing or different.
func verdictOf(mem *vfs.Mem) (reported, wrong error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l, err := open(damageConfig(), seams{fs: mem})
	if err != nil {
		return err, nil
	}
	defer func() {
		if err := l.Close(); err != nil && reported == nil {
			reported = err
		}
	}()
	for n := range int32(2) {
		p, err := l.Partition(ctx, "t", n)
		if err != nil {
			return err, nil
		}
		if err := p.Info().Err; err != nil {
			return err, nil
		}
		if hw := p.HighWatermark(); hw != damageRecords {
			return nil, fmt.Errorf("partition %d ends at %d, %d records were acknowledged, and no error", n, hw, damageRecords)
		}
		for offset := int64(0); offset < damageRecords; {
			records, err := p.Read(ctx, offset, 1<<20)
			if err != nil {
				return err, nil
			}
			if len(records) == 0 {
				return nil, fmt.Errorf("partition %d offset %d of %d: nothing is read and no error", n, offset, damageRecords)
			}
			for _, r := range records {
				if want := fmt.Sprintf("value %d of %d", offset, n); string(r.Value) != want || r.Offset != offset || string(r.Key) != string(damageKey(int(n))) {
					return nil, fmt.Errorf("partition %d offset %d holds key %q value %q at %d, want %q", n, offset, r.Key, r.Value, r.Offset, want)
				}
				offset++
			}
		}
	}
	return nil, nil
}

// damageEach does a damage at each of the positions to a copy of the log, several at a time, and wants the log to notice or to be whole. It returns
// how often it noticed.
func damageEach(t *testing.T, base *vfs.Mem, what string, positions []int, damage func(mem *vfs.Mem, i int) error) (reported int64) {
	t.Helper()
	const workers = 16
	var next, noticed atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(positions)) && !t.Failed(); n = next.Add(1) - 1 {
				i := positions[n]
				mem := base.CrashClone(vfs.CrashOptions{KeepUnsynced: 1})
				if err := damage(mem, i); err != nil {
					t.Errorf("%s at %d: %v", what, i, err)
					return
				}
				told, wrong := verdictOf(mem)
				if wrong != nil {
					t.Errorf("%s at %d: %v", what, i, wrong)
				}
				if told != nil {
					noticed.Add(1)
					if !explains(told) {
						t.Errorf("%s at %d: %v", what, i, told)
					}
				}
			}
		})
	}
	wg.Wait()
	return noticed.Load()
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
		if told, wrong := verdictOf(base.CrashClone(vfs.CrashOptions{KeepUnsynced: 1})); told != nil || wrong != nil {
			t.Fatal(told, wrong)
		}
		for _, name := range files(t, base, "/log") {
			data, err := vfs.ReadFile(base, name)
			if err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("clean=%v %s byte flipped", clean, name)
			positions := damagePositions(len(data), name)
			reported := damageEach(t, base, what, positions, func(mem *vfs.Mem, i int) error {
				return overwrite(mem, name, int64(i), data[i]^0x40)
			})
			t.Logf("clean=%v %s: %d bytes, %d flipped, %d reported", clean, name, len(data), len(positions), reported)
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
		damageEach(t, base, name+" cut", damagePositions(len(data), name), func(mem *vfs.Mem, i int) error {
			f, err := mem.Open(name)
			if err != nil {
				return err
			}
			return errors.Join(f.Truncate(int64(i)), f.Close())
		})
	}
}

// damagePositions is every byte of a file with BILLET_SLOW=all, but for the journal and the slots, which are mostly empty: of these it is their
// beginnings and a sample. Otherwise it is a sample of all.
func damagePositions(size int, name string) []int {
	step := 101
	switch slow := os.Getenv("BILLET_SLOW"); {
	case slow == "all":
		step = 1
	case slow != "":
		step = 5
	case testing.Short():
		step = 401
	}
	var out []int
	for i := 0; i < size; i += step {
		if path.Base(name) == "journal" && i > 24<<10 {
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

func overwrite(mem *vfs.Mem, name string, at int64, b byte) error {
	f, err := mem.Open(name)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{b}, at)
	return errors.Join(err, f.SyncData(), f.Close())
}
