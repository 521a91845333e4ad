package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/billetlog/billet/internal/invariants"
	"github.com/billetlog/billet/internal/vfs"
)

// damageStates are journals as a power cut may leave them: the commits of these sizes, made one after the other to two replicas.
var damageStates = map[string][]int{
	"empty":    {},
	"one":      {100},
	"few":      {100, 900, 10, 500},
	"one full": {900, 900, 400, 800},
	"two":      {900, 900, 900, 900, 900, 900, 300},
	"third":    {900, 900, 900, 900, 900, 900, 900, 2000, 100, 100, 40, 1000},
	"wrapped":  {900, 10, 2000, 900, 1300, 900, 40, 900, 900, 700, 300, 20, 900, 1000, 1000, 1800, 900, 1200, 500},
}

// damageState makes one and returns what is on disk and what the replicas must have.
func damageState(t *testing.T, sizes []int) (*vfs.Mem, [2]string) {
	g := newRig(t, 4096, 2)
	var want [2]strings.Builder
	for i, size := range sizes {
		data := make([]byte, size)
		for k := range data {
			data[k] = byte(i*37 + k*11 + k/256)
		}
		g.commit(i%2, data)
		want[i%2].Write(data)
	}
	after := g.crash(0)
	g.end()
	return after, [2]string{want[0].String(), want[1].String()}
}

// patched returns a copy of a file system with bytes of the journal changed.
func patched(t *testing.T, before *vfs.Mem, pos int64, b []byte) *vfs.Mem {
	t.Helper()
	fsys := before.CrashClone(vfs.CrashOptions{})
	f, err := fsys.Open(rigJournal)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, pos); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return fsys
}

// mustOpenOrReport opens the journal: damage is reported with its place, or all that was durable is there.
func mustOpenOrReport(t *testing.T, fsys *vfs.Mem, want [2]string, what string) (damaged bool) {
	t.Helper()
	j, _, err := OpenJournal(rigOptions(fsys, 4096), rigResolver{fsys})
	if err != nil {
		var damage *CorruptionError
		if !errors.As(err, &damage) || damage.File != rigJournal || damage.Pos < 0 || damage.Pos > 16384 {
			t.Fatalf("%s: %v", what, err)
		}
		return true
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for r := range want {
		if got := segmentContent(t, fsys, Key{uint64(r + 1), 1}); got != want[r] {
			t.Fatalf("%s: replica %d has %d bytes instead of %d, or others", what, r, len(got), len(want[r]))
		}
	}
	return false
}

func TestJournalFlippedByte(t *testing.T) {
	for name, sizes := range damageStates {
		t.Run(name, func(t *testing.T) {
			before, want := damageState(t, sizes)
			content, err := vfs.ReadFile(before, rigJournal)
			if err != nil {
				t.Fatal(err)
			}
			step, damaged := 7, 0
			switch {
			case testing.Short() || invariants.Enabled:
				step = 41
			case name == "wrapped":
				step = 1
			}
			for pos := 0; pos < len(content); pos += step {
				fsys := patched(t, before, int64(pos), []byte{content[pos] ^ byte(1<<(pos%8))})
				if mustOpenOrReport(t, fsys, want, fmt.Sprintf("flip at %d", pos)) {
					damaged++
					if pos < journalHalvesStart {
						t.Fatalf("flip at %d in one header was reported", pos)
					}
				}
			}
			if len(sizes) > 0 && damaged == 0 {
				t.Error("no flip was reported")
			}
		})
	}
}

func TestJournalNoiseInSector(t *testing.T) {
	for name, sizes := range damageStates {
		t.Run(name, func(t *testing.T) {
			before, want := damageState(t, sizes)
			content, _ := vfs.ReadFile(before, rigJournal)
			for pos := journalHalvesStart; pos < len(content); pos += sectorSize {
				random := rand.New(rand.NewPCG(1, uint64(pos)))
				noise := make([]byte, sectorSize)
				for i := range noise {
					noise[i] = byte(random.Uint32())
				}
				mustOpenOrReport(t, patched(t, before, int64(pos), noise), want, fmt.Sprintf("noise at %d", pos))
			}
		})
	}
}

func TestJournalCut(t *testing.T) {
	before, want := damageState(t, damageStates["wrapped"])
	step := 1
	if testing.Short() || invariants.Enabled {
		step = 97
	}
	for size := int64(0); size < 16384; size += int64(step) {
		fsys := before.CrashClone(vfs.CrashOptions{})
		f, err := fsys.Open(rigJournal)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		if !mustOpenOrReport(t, fsys, want, fmt.Sprintf("cut at %d", size)) {
			t.Fatalf("cut at %d was not reported", size)
		}
	}
}

// After Close nothing in the halves matters, nor their length.
func TestJournalCleanIgnoresHalves(t *testing.T) {
	g := newRig(t, 4096, 2)
	for i := range 9 {
		g.commit(i%2, bytes.Repeat([]byte{byte(i)}, 700))
	}
	g.end()
	before := g.crash(0)
	var want [2]string
	for r := range want {
		want[r] = segmentContent(t, before, Key{uint64(r + 1), 1})
	}
	for pos := int64(journalHalvesStart); pos < 16384; pos += 13 {
		if mustOpenOrReport(t, patched(t, before, pos, []byte{0xee}), want, "flip") {
			t.Fatalf("flip at %d in a clean journal was reported", pos)
		}
	}
	f, err := before.Open(rigJournal)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(10000); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if mustOpenOrReport(t, before, want, "cut") {
		t.Error("cut of a clean journal was reported")
	}
	if info, _ := before.Stat(rigJournal); info.Size != 16384 {
		t.Errorf("journal has %d bytes", info.Size)
	}
}

// A power cut in the middle of the last group leaves any of its sectors: it is there or it is not, and nothing else is touched.
func TestJournalTornGroup(t *testing.T) {
	for name, sizes := range damageStates {
		if len(sizes) < 2 {
			continue
		}
		for n := 1; n < len(sizes); n++ {
			before, wantBefore := damageState(t, sizes[:n])
			_, wantAfter := damageState(t, sizes[:n+1])
			sectors := tornSectors(t, before, sizes[:n+1], n)
			if len(sectors) > 6 {
				sectors = sectors[:6]
			}
			for subset := range 1 << len(sectors) {
				fsys := before.CrashClone(vfs.CrashOptions{})
				for i, s := range sectors {
					if subset>>i&1 == 1 {
						fsys = patched(t, fsys, s.pos, s.bytes)
					}
				}
				j, _, err := OpenJournal(rigOptions(fsys, 4096), rigResolver{fsys})
				if err != nil {
					t.Fatalf("%s, %d commits, sectors %b: %v", name, n, subset, err)
				}
				_ = j.Close()
				for r := range wantBefore {
					got := segmentContent(t, fsys, Key{uint64(r + 1), 1})
					if got != wantBefore[r] && got != wantAfter[r] {
						t.Fatalf("%s, %d commits, sectors %b: replica %d has %d bytes", name, n, subset, r, len(got))
					}
				}
			}
		}
	}
}

type tornSector struct {
	pos   int64
	bytes []byte
}

// tornSectors returns the sectors that a commit of sizes[n] changes in a journal that looks like before.
func tornSectors(t *testing.T, before *vfs.Mem, sizes []int, n int) []tornSector {
	t.Helper()
	old, err := vfs.ReadFile(before, rigJournal)
	if err != nil {
		t.Fatal(err)
	}
	header, ok, err := decodeJournalHeader(old)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	f, err := before.Open(rigJournal)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	scan := journalScan{file: f, path: rigJournal, header: &header}
	blocks, err := scan.blocks()
	if err != nil {
		t.Fatal(err)
	}
	last := blocks[len(blocks)-1]
	data := make([]byte, sizes[n])
	for k := range data {
		data[k] = byte(n*37 + k*11 + k/256)
	}
	var at int64
	for i := n % 2; i < n; i += 2 {
		at += int64(sizes[i])
	}
	payload := appendJournalRecord(make([]byte, journalBlockHeader), &journalRecord{
		kind: journalData, size: len(data), key: Key{uint64(n%2 + 1), 1}, generation: 1, pos: at}, [][]byte{data})
	finishJournalBlock(payload, &journalBlock{generation: header.generation, nonce: header.nonce, seq: last.seq + 1, keep: last.keep, count: 1})
	image := appendSectors(nil, payload)
	pos := last.end()
	half := 0
	if pos > journalHalvesStart+4096 {
		half = 1
	}
	if pos+int64(len(image)) > scan.halfEnd(half)-sectorSize {
		return nil // it would go to the other half, after a seal
	}
	var sectors []tornSector
	for i := 0; i < len(image); i += sectorSize {
		sectors = append(sectors, tornSector{pos + int64(i), image[i:][:sectorSize]})
	}
	return sectors
}

// Bytes of a client that look like a block of this very journal must not be taken for one.
func TestJournalNestedBlock(t *testing.T) {
	g := newRig(t, 8192, 1)
	fake := appendJournalRecord(make([]byte, journalBlockHeader), &journalRecord{kind: journalFence, key: Key{1, 1}}, nil)
	finishJournalBlock(fake, &journalBlock{generation: 1, nonce: 12345, seq: 9, keep: 1, count: 1})
	// So that the head begins a sector of the file.
	data := append(make([]byte, sectorPayload-journalBlockHeader-journalRecordHeader), fake...)
	g.commit(0, data)
	g.commit(0, []byte("end"))
	after := g.crash(0)
	if stats := reopen(t, after, 8192); stats.Records != 2 || stats.Fenced != 0 {
		t.Errorf("%+v", stats)
	}
}

func TestJournalOtherVersion(t *testing.T) {
	before, _ := damageState(t, []int{1})
	content, _ := vfs.ReadFile(before, rigJournal)
	h, _, _ := decodeJournalHeader(content)
	h.seq++
	b := appendJournalHeader(nil, &h)
	b[19] = 9
	rehash(b)
	fsys := patched(t, before, 0, b)
	_, _, err := OpenJournal(rigOptions(fsys, 4096), rigResolver{fsys})
	if err == nil || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "version 9") {
		t.Error(err)
	}
}

func TestJournalBothHeadersGone(t *testing.T) {
	before, _ := damageState(t, []int{1})
	fsys := patched(t, before, 0, make([]byte, journalHalvesStart))
	if _, _, err := OpenJournal(rigOptions(fsys, 4096), rigResolver{fsys}); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}
