package segment

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/vfs"
)

// twin is the log as a slice: slow, simple and right.
type twin struct {
	entries []Entry // as they come back
	first   uint64
	start   int64 // offset
	term    uint64
	mark    uint64 // durable
}

func (w *twin) last() uint64 { return w.first + uint64(len(w.entries)) - 1 }

func (w *twin) lastTerm() uint64 {
	if n := len(w.entries); n > 0 {
		return w.entries[n-1].Term
	}
	return w.term
}

func (w *twin) end() int64 {
	for _, e := range slices.Backward(w.entries) {
		if e.Kind == KindData {
			return batch.Batch(e.Data).NextOffset()
		}
	}
	return w.start
}

func (w *twin) clone() *twin {
	c := *w
	c.entries = slices.Clone(w.entries)
	return &c
}

func (w *twin) truncate(from uint64) {
	w.entries = w.entries[:from-w.first]
	w.mark = min(w.mark, from-1)
}

// append does what Append promises.
func (w *twin) append(entries []Entry) {
	if len(entries) == 0 {
		return
	}
	if entries[0].Index <= w.last() {
		w.truncate(entries[0].Index)
	}
	for _, e := range entries {
		void := e.Kind == KindData && (len(e.Data) < batch.HeaderSize ||
			batch.Batch(e.Data).BaseOffset() != w.end() || uint64(batch.Batch(e.Data).LeaderEpoch()) != e.Term)
		w.entries = append(w.entries, stored(e, void))
	}
}

// retained forgets what lies below a new start.
func (w *twin) retained(first uint64, start int64) {
	if first > w.first {
		w.term = w.entries[first-w.first-1].Term
		w.entries = w.entries[first-w.first:]
		w.first, w.start = first, start
	}
}

// isPrefixOf tells whether w could be what is left of full.
func (w *twin) isPrefixOf(full *twin) bool {
	if w.first != full.first || len(w.entries) > len(full.entries) {
		return false
	}
	for i, e := range w.entries {
		if !sameEntry(e, full.entries[i]) {
			return false
		}
	}
	return true
}

// readTwin reads a whole log into a twin.
func readTwin(tb tester, l *Log) *twin {
	tb.Helper()
	w := &twin{first: l.FirstIndex(), start: l.StartOffset(), term: l.segments()[0].header.prevTerm}
	var err error
	w.entries, err = l.Entries(nil, w.first, l.LastIndex()+1, 1<<40)
	must(tb, err)
	if w.end() != l.EndOffset() || w.lastTerm() != l.LastTerm() || w.last() != l.LastIndex() {
		tb.Fatalf("the log says end %d, term %d, last %d; its entries say %d, %d, %d",
			l.EndOffset(), l.LastTerm(), l.LastIndex(), w.end(), w.lastTerm(), w.last())
	}
	return w
}

// drawEntries makes entries that may follow index from-1 of the twin.
func drawEntries(t *rapid.T, tb tester, w *twin, from uint64) []Entry {
	base := w.clone()
	base.truncate(from)
	f := &feeder{tb: tb, index: from, term: base.lastTerm(), offset: base.end()}
	var entries []Entry
	if f.term == 0 || from <= w.last() || rapid.IntRange(0, 4).Draw(t, "newTerm") == 0 {
		entries = append(entries, f.noop(max(f.term, w.lastTerm())+uint64(rapid.IntRange(1, 3).Draw(t, "terms"))))
	}
	for range rapid.IntRange(0, 6).Draw(t, "entries") {
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			entries = append(entries, f.void())
		case 1:
			entries = append(entries, f.config("members and more members"))
		case 2:
			entries = append(entries, Entry{Index: f.index, Term: f.term, Kind: KindVoid})
			f.index++
		case 3:
			entries = append(entries, Entry{Index: f.index, Term: f.term, Kind: KindData, Data: []byte("no batch")})
			f.index++
		default:
			entries = append(entries, f.data(rapid.IntRange(1, 4).Draw(t, "records"), rapid.SampledFrom([]int{0, 30, 300, 1500}).Draw(t, "size")))
		}
	}
	return entries
}

// player plays random operations on a log and its twin.
type player struct {
	tb      tester
	fs      *vfs.Mem
	options Options
	log     *Log
	twin    *twin
}

func (p *player) check(t *rapid.T) {
	got := readTwin(p.tb, p.log)
	if !got.isPrefixOf(p.twin) || got.last() != p.twin.last() || got.start != p.twin.start {
		t.Fatalf("log [%d, %d] from %d, twin [%d, %d] from %d", got.first, got.last(), got.start, p.twin.first, p.twin.last(), p.twin.start)
	}
	if d := p.log.DurableIndex(); d < min(p.twin.mark, p.twin.last()) {
		t.Fatalf("durable %d, twin %d", d, p.twin.mark)
	}
}

func (p *player) append(t *rapid.T) {
	from := p.twin.last() + 1
	if rapid.IntRange(0, 5).Draw(t, "conflict") == 0 {
		from = rapid.Uint64Range(p.twin.first, from).Draw(t, "from")
	}
	entries := drawEntries(t, p.tb, p.twin, from)
	a, err := p.log.Append(entries)
	must(p.tb, err)
	p.twin.append(entries)
	if a.LastIndex != p.twin.last() || a.EndOffset != p.twin.end() {
		t.Fatalf("appended %+v, twin ends at %d, %d", a, p.twin.last(), p.twin.end())
	}
	written := 0
	for _, w := range a.Writes {
		for _, b := range w.Data {
			written += len(b)
		}
	}
	if written != a.Bytes {
		t.Fatalf("writes have %d bytes, Bytes is %d", written, a.Bytes)
	}
}

func (p *player) checkpoint(t *rapid.T) {
	index := rapid.Uint64Range(p.twin.first-1, p.twin.last()).Draw(t, "checkpoint")
	part := p.twin.clone()
	part.truncate(index + 1)
	durable := rapid.Bool().Draw(t, "durable")
	must(p.tb, p.log.SaveCheckpoint(Checkpoint{Index: index, Term: part.lastTerm(), Offset: part.end(), Payload: []byte("folded")}, durable))
	p.twin.mark = max(p.twin.mark, index)
	c, ok := p.log.Checkpoint()
	if !ok || c.Index < index || string(c.Payload) != "folded" {
		t.Fatalf("checkpoint %+v %v, saved %d", c, ok, index)
	}
}

func (p *player) retain(t *rapid.T) {
	offset := rapid.Int64Range(p.twin.start, p.twin.end()).Draw(t, "offset")
	below := rapid.Uint64Range(p.twin.first, p.twin.last()+1).Draw(t, "below")
	d, err := p.log.DeleteBelow(offset, below)
	must(p.tb, err)
	if d.FirstIndex > below || d.StartOffset > offset {
		t.Fatalf("deleted %+v with offset %d, index %d", d, offset, below)
	}
	p.twin.retained(d.FirstIndex, d.StartOffset)
	p.twin.mark = max(p.twin.mark, d.FirstIndex-1)
}

func (p *player) reopen(t *rapid.T) {
	durable := rapid.Bool().Draw(t, "durable")
	must(p.tb, p.log.Close(durable))
	if durable {
		p.twin.mark = p.twin.last()
	}
	p.log, _ = openLog(p.tb, p.options, OpenHints{DurableIndex: p.twin.mark})
	p.twin.mark = p.twin.last()
}

// crash goes on with what a power cut leaves.
func (p *player) crash(t *rapid.T) {
	keep := rapid.SampledFrom([]float64{0, 0.3, 0.8, 1}).Draw(t, "keep")
	seed := rapid.Uint64().Draw(t, "seed")
	p.fs = p.fs.CrashClone(vfs.CrashOptions{KeepUnsynced: keep, Rand: rand.New(rand.NewPCG(seed, 0))})
	_ = p.log.Close(false)
	p.options.FS = p.fs
	p.log, _ = openLog(p.tb, p.options, OpenHints{DurableIndex: p.twin.mark})
	got := readTwin(p.tb, p.log)
	if !got.isPrefixOf(p.twin) || got.last() < p.twin.mark {
		t.Fatalf("after a power cut there are [%d, %d] of [%d, %d], durable were %d", got.first, got.last(), p.twin.first, p.twin.last(), p.twin.mark)
	}
	p.twin = got
	p.twin.mark = got.last()
}

func TestTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := vfs.NewMem()
		p := &player{tb: rt, fs: m, options: logOptions(m)}
		p.options.SegmentBytes = int64(rapid.SampledFrom([]int{512, 1500, 4000}).Draw(rt, "segment"))
		p.options.MaxUnsyncedBytes = int64(rapid.SampledFrom([]int{700, 1 << 20}).Draw(rt, "unsynced"))
		p.options.LossyTail = rapid.Bool().Draw(rt, "lossy")
		at := Start{FirstIndex: 1}
		if rapid.Bool().Draw(rt, "later") {
			at = Start{FirstIndex: 100, PrevTerm: 3, Offset: 1000}
		}
		must(t, p.options.FS.MkdirAll("/"))
		var err error
		p.log, err = Create(p.options, at)
		must(t, err)
		defer func() { _ = p.log.Close(false) }()
		p.twin = &twin{first: at.FirstIndex, start: at.Offset, term: at.PrevTerm, mark: at.FirstIndex - 1}
		rt.Repeat(map[string]func(*rapid.T){
			"":        p.check,
			"append":  p.append,
			"append2": p.append,
			"truncate": func(t *rapid.T) {
				from := rapid.Uint64Range(p.twin.first, p.twin.last()+1).Draw(t, "from")
				must(p.tb, p.log.Truncate(from))
				p.twin.truncate(from)
			},
			"sync": func(*rapid.T) {
				must(p.tb, p.log.Sync())
				p.twin.mark = p.twin.last()
			},
			"roll":       func(*rapid.T) { must(p.tb, p.log.Roll()) },
			"checkpoint": p.checkpoint,
			"retain":     p.retain,
			"forget":     func(t *rapid.T) { p.log.Forget(rapid.Uint64Range(0, p.twin.last()+3).Draw(t, "upTo")) },
			"reads":      func(*rapid.T) { checkReads(p.tb, p.log, p.twin.entries) },
			"reopen":     p.reopen,
			"crash":      p.crash,
		})
	})
}

// offsetForTime looks at every record.
func (w *twin) offsetForTime(ts int64) (offset, timestamp int64, ok bool) {
	for _, e := range w.entries {
		if e.Kind != KindData {
			continue
		}
		records, err := batch.DecodeAll(batch.Batch(e.Data), 1<<20)
		if err != nil {
			return 0, 0, false
		}
		for _, r := range records {
			if r.Timestamp >= ts {
				return r.Offset, r.Timestamp, true
			}
		}
	}
	return 0, 0, false
}
