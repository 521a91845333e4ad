package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

func exampleSlot() Slot {
	return Slot{
		Seq: 9, Generation: 3, Term: 12, Vote: 2, Commit: 100, Mark: 99, MarkOffset: 4711, Role: 1, BootID: "boot-1", Clean: true,
		Snapshots: [][]byte{[]byte("s1"), {}, []byte("snapshot 3")},
		Bootstrap: []byte("boot"),
		Identity: Identity{
			Cluster: [16]byte{1, 2, 3}, Topic: [16]byte{15: 9}, Partition: -7, Key: Key{70, 2},
		},
		Created: 1764400000000000000,
	}
}

// wideSlot takes several sectors.
func wideSlot() Slot {
	s := exampleSlot()
	s.Bootstrap = bytes.Repeat([]byte("0123456789"), 130)
	return s
}

func newSlotDir(t *testing.T) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/r"); err != nil {
		t.Fatal(err)
	}
	mem.SyncAll()
	return mem
}

func mustCreateSlot(t *testing.T, fsys vfs.FS, s Slot) *SlotFile {
	t.Helper()
	f, err := CreateSlotFile(fsys, "/r", s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func mustPut(t *testing.T, f *SlotFile, s Slot) Write {
	t.Helper()
	w, err := f.Put(s)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// readSlot opens and closes the slot file.
func readSlot(fsys vfs.FS) (Slot, error) {
	f, s, err := OpenSlotFile(fsys, "/r")
	if err == nil {
		err = f.Close()
	}
	return s, err
}

const goldenSlot = "09fcdee31b5b173f626c736c00000001000000ba000000000000000000000009" +
	"0000000000000003000000000000000c00000000000000020000000000000064" +
	"00000000000000630000000000001267187c6873a9b300000102030000000000" +
	"0000000000000000000000000000000000000000000000090000000000000046" +
	"0000000000000002fffffff9010103060000000400000000626f6f742d31626f" +
	"6f74000000027331000000000000000a736e617073686f742033"

func TestSlotGolden(t *testing.T) {
	s := exampleSlot()
	b, err := appendSlot(nil, &s)
	if err != nil || len(b) != sectorSize {
		t.Fatal(len(b), err)
	}
	golden(t, "slot", b[:186], goldenSlot)
}

func TestSlotRoundTrip(t *testing.T) {
	full := exampleSlot()
	full.Bootstrap = make([]byte, SlotImageMax-slotFixed-len(full.BootID)-3*4-12)
	for i, s := range []Slot{{}, exampleSlot(), wideSlot(), full, {MarkOffset: -1, Created: -5, Role: 255, BootID: strings.Repeat("x", 255)}} {
		b, err := appendSlot(nil, &s)
		if err != nil {
			t.Fatal(i, err)
		}
		got, err := decodeSlot(b)
		if err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("%d: %+v came back as %+v, %v", i, s, got, err)
		}
	}
	full.Bootstrap = append(full.Bootstrap, 0)
	for i, s := range []Slot{full, {BootID: strings.Repeat("x", 256)}, {Snapshots: make([][]byte, 4)}} {
		if _, err := appendSlot(nil, &s); err == nil {
			t.Errorf("%d was accepted", i)
		}
	}
}

func TestSlotFile(t *testing.T) {
	mem := newSlotDir(t)
	f := mustCreateSlot(t, mem, exampleSlot())
	after := mem.CrashClone(vfs.CrashOptions{})
	if s, err := readSlot(after); err != nil || s.Term != 12 || s.Seq != 2 {
		t.Fatalf("%+v %v", s, err)
	}
	if _, err := CreateSlotFile(mem, "/r", exampleSlot()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second create: %v", err)
	}
	s := exampleSlot()
	s.Term = 13
	w := mustPut(t, f, s)
	if w.Key != s.Identity.Key || w.Generation != 3 || w.File != SlotFileName || !w.Slot || w.Size != len(w.Data[0]) || f.Seq() != 3 {
		t.Errorf("%+v", w)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if s, err := readSlot(mem.CrashClone(vfs.CrashOptions{})); err != nil || s.Term != 13 || s.Seq != 3 {
		t.Fatalf("%+v %v", s, err)
	}
	s.Identity.Key.Replica++
	if _, err := f.Put(s); !errors.Is(err, ErrForeign) {
		t.Errorf("foreign slot: %v", err)
	}
	s.Identity.Key.Replica--
	s.Bootstrap = make([]byte, SlotImageMax)
	if _, err := f.Put(s); err == nil {
		t.Error("large slot was accepted")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Put(exampleSlot()); !errors.Is(err, ErrClosed) {
		t.Errorf("Put after Close: %v", err)
	}
	if err := f.Sync(); !errors.Is(err, ErrClosed) {
		t.Errorf("Sync after Close: %v", err)
	}
}

// Whatever is put, synced and journaled: a power cut never takes back an image that was durable, and never leaves none.
func TestSlotPowerCuts(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 7))
		mem := newSlotDir(t)
		f := mustCreateSlot(t, mem, wideSlot())
		durable, journaled := uint64(12), []Write(nil)
		for step := range uint64(30) {
			s := wideSlot()
			s.Term = step + 13
			s.Bootstrap = s.Bootstrap[:random.IntN(len(s.Bootstrap))]
			w := mustPut(t, f, s)
			switch random.IntN(4) {
			case 0:
				if err := f.Sync(); err != nil {
					t.Fatal(err)
				}
				durable = s.Term
			case 1:
				journaled = append(journaled, w)
				f.MarkDurable(f.Seq())
				durable = s.Term
			case 2:
				f.MarkDurable(f.Seq() - 1)
			}
			after := mem.CrashClone(vfs.CrashOptions{KeepUnsynced: 0.5, Rand: random})
			replaySlots(t, after, journaled)
			got, err := readSlot(after)
			if err != nil || got.Term < durable || got.Term > s.Term {
				t.Fatalf("seed %d, step %d: term %d, durable was %d: %v", seed, step, got.Term, durable, err)
			}
		}
		_ = f.Close()
	}
}

func replaySlots(t *testing.T, fsys vfs.FS, ws []Write) {
	t.Helper()
	f, err := fsys.Open("/r/" + SlotFileName)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range ws {
		if _, err := redoSlot(f, SlotFileName, w.Pos, w.Data[0]); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// What is read at open is durable, also when only the process died before.
func TestSlotOpenMakesDurable(t *testing.T) {
	mem := newSlotDir(t)
	f := mustCreateSlot(t, mem, exampleSlot())
	s := exampleSlot()
	s.Vote = 77
	mustPut(t, f, s)
	_ = f.Close()
	if got, err := readSlot(mem); err != nil || got.Vote != 77 {
		t.Fatalf("%+v %v", got, err)
	}
	if got, err := readSlot(mem.CrashClone(vfs.CrashOptions{})); err != nil || got.Vote != 77 {
		t.Fatalf("%+v %v", got, err)
	}
}

// A flip in an image is damage, never a step back to the older one. Behind the images it is nothing.
func TestSlotFlippedByte(t *testing.T) {
	for name, s := range map[string]Slot{"one sector": exampleSlot(), "several": wideSlot()} {
		mem := newSlotDir(t)
		f := mustCreateSlot(t, mem, s)
		s.Vote = 5
		used := mustPut(t, f, s).Size
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		content, err := vfs.ReadFile(mem, "/r/raft")
		if err != nil {
			t.Fatal(err)
		}
		file, err := mem.Open("/r/raft")
		if err != nil {
			t.Fatal(err)
		}
		for pos := range content {
			if _, err := file.WriteAt([]byte{content[pos] ^ byte(1<<(pos%8))}, int64(pos)); err != nil {
				t.Fatal(err)
			}
			got, err := readSlot(mem)
			var damage *CorruptionError
			if inImage := pos%slotPlace < used; inImage && (!errors.As(err, &damage) || damage.Pos/slotPlace != int64(pos/slotPlace)) {
				t.Fatalf("%s: flip at %d: %+v %v", name, pos, got, err)
			} else if !inImage && (err != nil || got.Vote != 5) {
				t.Fatalf("%s: flip at %d: %+v %v", name, pos, got, err)
			}
			if _, err := file.WriteAt(content[pos:pos+1], int64(pos)); err != nil {
				t.Fatal(err)
			}
		}
		_ = file.Close()
	}
}

func TestSlotBadFiles(t *testing.T) {
	image := func(s Slot) []byte {
		b, err := appendSlot(nil, &s)
		if err != nil {
			t.Fatal(err)
		}
		return append(b, make([]byte, slotPlace-len(b))...)
	}
	one, two := exampleSlot(), exampleSlot()
	two.Seq = 10
	other := two
	other.Identity.Topic[0]++
	torn := image(wideSlot())
	copy(torn[sectorSize:], image(two)[:sectorSize])
	long, short := two, two
	long.Snapshots, short.Snapshots = [][]byte{bytes.Repeat([]byte{5}, 900)}, [][]byte{bytes.Repeat([]byte{5}, 800)}
	same, before := image(short), image(long) // torn, but the sector that was not written has the same bytes
	written, err := appendSlot(nil, &short)
	if err != nil {
		t.Fatal(err)
	}
	copy(same[len(written)-sectorSize:], before[len(written)-sectorSize:])
	version := gatherSectors(nil, image(two)[:sectorSize])[:slotFixed+34]
	version[15] = 2
	rehash(version)
	later := append(appendSectors(nil, version), make([]byte, slotPlace-sectorSize)...)
	for name, c := range map[string]struct {
		content []byte
		err     error // nil: good
	}{
		"good":        {append(image(one), image(two)...), nil},
		"torn":        {append(image(one), torn...), nil},
		"same":        {append(image(one), same...), nil},
		"only same":   {append(bytes.Clone(torn), same...), nil},
		"both torn":   {append(bytes.Clone(torn), torn...), ErrCorrupt},
		"empty":       {nil, ErrCorrupt},
		"zeros":       {make([]byte, slotFileSize), ErrCorrupt},
		"one zero":    {append(image(one), make([]byte, slotPlace)...), ErrCorrupt},
		"short":       {append(image(one), image(two)[1:]...), ErrCorrupt},
		"long":        {append(append(image(one), image(two)...), 0), ErrCorrupt},
		"same seq":    {append(image(one), image(one)...), ErrCorrupt},
		"two of them": {append(image(one), image(other)...), ErrCorrupt},
		"version":     {append(image(one), later...), errSlotVersion},
	} {
		mem := newSlotDir(t)
		if err := vfs.WriteFileAtomic(mem, "/r/raft", c.content); err != nil {
			t.Fatal(err)
		}
		if _, err := readSlot(mem); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := readSlot(newSlotDir(t)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}

// Every operation fails once: what was durable stays, and after a failed write or sync nothing goes on.
func TestSlotFaults(t *testing.T) {
	for n := 1; ; n++ {
		mem := newSlotDir(t)
		trigger := vfs.FailNth(n, nil, nil)
		fsys := vfs.Inject(mem, trigger.Fault)
		durable := uint64(0)
		f, err := CreateSlotFile(fsys, "/r", exampleSlot())
		if err == nil {
			durable = 12
			failed := false
			for term := uint64(13); term < 17; term++ {
				s := exampleSlot()
				s.Term = term
				_, err := f.Put(s)
				if err == nil {
					err = f.Sync()
				}
				if err == nil && failed {
					t.Fatalf("fault %d: term %d was accepted after a failure", n, term)
				}
				if failed = failed || err != nil; !failed {
					durable = term
				} else if !errors.Is(err, ErrFailed) {
					t.Fatalf("fault %d: %v", n, err)
				}
			}
			_ = f.Close()
		}
		for _, keep := range []float64{0, 0.5, 1} {
			s, err := readSlot(mem.CrashClone(vfs.CrashOptions{KeepUnsynced: keep}))
			switch {
			case durable == 0 && errors.Is(err, fs.ErrNotExist):
			case err != nil || s.Term < durable:
				t.Fatalf("fault %d: term %d, durable was %d: %v", n, s.Term, durable, err)
			}
		}
		if !trigger.Fired() {
			break
		}
	}
}

func TestSlotRedo(t *testing.T) {
	mem := newSlotDir(t)
	f := mustCreateSlot(t, mem, exampleSlot())
	var ws []Write
	for term := uint64(20); term < 24; term++ {
		s := exampleSlot()
		s.Term = term
		ws = append(ws, mustPut(t, f, s))
		f.MarkDurable(f.Seq())
	}
	file, err := mem.Open(filepath.Join("/r", SlotFileName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for i, w := range ws {
		if done, err := redoSlot(file, "raft", w.Pos, w.Data[0]); done || err != nil {
			t.Errorf("%d was written over a newer one: %v", i, err)
		}
	}
	s := exampleSlot()
	s.Seq, s.Term = 100, 50
	image, _ := appendSlot(nil, &s)
	for _, pos := range []int64{1, 512, -1, slotFileSize} {
		if _, err := redoSlot(file, "raft", pos, image); err == nil {
			t.Errorf("position %d was accepted", pos)
		}
	}
	if done, err := redoSlot(file, "raft", slotPlace, image); !done || err != nil {
		t.Error(done, err)
	}
	if got, err := readSlot(mem); err != nil || got.Term != 50 {
		t.Errorf("%+v %v", got, err)
	}
	s.Seq, s.Identity.Partition = 101, 8
	image, _ = appendSlot(nil, &s)
	if _, err := redoSlot(file, "raft", 0, image); !errors.Is(err, ErrForeign) {
		t.Error(err)
	}
	if _, err := redoSlot(file, "raft", 0, image[:100]); err == nil {
		t.Error("part of an image was accepted")
	}
}

// FuzzSlot: no bytes make the decoder fail otherwise than by saying no, and what it accepts is written the same way again.
func FuzzSlot(f *testing.F) {
	for _, s := range []Slot{{}, exampleSlot(), wideSlot()} {
		b, _ := appendSlot(nil, &s)
		f.Add(gatherSectors(nil, b))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		_, _ = decodeSlot(payload)
		if len(payload) < slotFixed || len(payload) > SlotImageMax {
			return
		}
		payload = bytes.Clone(payload) // reach what is behind the hash
		copy(payload[8:], []byte{0x62, 0x6c, 0x73, 0x6c, 0, 0, 0, 1, 0, 0, byte(len(payload) >> 8), byte(len(payload))})
		rehash(payload)
		place := appendSectors(nil, payload)
		s, err := decodeSlot(place)
		if err != nil {
			return
		}
		again, err := appendSlot(nil, &s)
		if err != nil || !bytes.Equal(again, place) {
			t.Fatalf("%v: was %x\nis  %x", fmt.Sprint(s), place, again)
		}
	})
}
