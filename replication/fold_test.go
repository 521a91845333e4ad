package replication

import (
	"errors"
	"math"
	"testing"

	"github.com/billetlog/billet/internal/batch"
)

func producerBatch(t testing.TB, base int64, id int64, epoch int16, seq int32, n int) batch.Batch {
	t.Helper()
	var b batch.Builder
	b.Reset(batch.BuilderOptions{BaseOffset: base, HasProducer: id >= 0, ProducerID: id, ProducerEpoch: epoch, BaseSequence: seq})
	for i := range n {
		b.Append(1000+int64(i), []byte("k"), []byte("v"), nil)
	}
	out, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name      string
		epoch     int16
		first     int32
		seen      bool
		lastEpoch int16
		lastSeq   int32
		want      error
	}{
		{"unknown producer, any sequence", 3, 77, false, 0, 0, nil},
		{"next", 0, 5, true, 0, 4, nil},
		{"gap", 0, 6, true, 0, 4, ErrOutOfOrderSequence},
		{"repeated but forgotten", 0, 3, true, 0, 4, ErrOutOfOrderSequence},
		{"new epoch from zero", 1, 0, true, 0, 4, nil},
		{"new epoch not from zero", 1, 5, true, 0, 4, ErrOutOfOrderSequence},
		{"old epoch", 0, 5, true, 1, 4, ErrProducerFenced},
		{"wraps to zero", 0, 0, true, 0, math.MaxInt32, nil},
		{"does not wrap to one", 0, 1, true, 0, math.MaxInt32, ErrOutOfOrderSequence},
	} {
		if err := judge(9, c.epoch, c.first, c.seen, c.lastEpoch, c.lastSeq); !errors.Is(err, c.want) || (c.want == nil && err != nil) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

func TestFoldRemembersWindow(t *testing.T) {
	f := newFold()
	for i := range 20 {
		f.apply(producerBatch(t, int64(i*2), 7, 0, int32(i*2), 2))
	}
	p := f.producers[7]
	for i := range 20 {
		at, ok := p.find(0, int32(i*2), int32(i*2+1))
		if want := i >= 20-producerWindow; ok != want || (ok && at != int64(i*2)) {
			t.Errorf("batch %d: found %v at %d, want found %v", i, ok, at, want)
		}
	}
	if _, ok := p.find(1, 38, 39); ok {
		t.Error("found a batch of another epoch")
	}
	f.apply(producerBatch(t, 40, 7, 1, 0, 1))
	if p := f.producers[7]; p.n != 1 || p.epoch != 1 {
		t.Errorf("a new epoch keeps %d batches of epoch %d", p.n, p.epoch)
	}
	f.apply(producerBatch(t, 41, -1, -1, -1, 1))
	if len(f.producers) != 1 {
		t.Errorf("a batch without a producer is remembered")
	}
}

func TestFoldEncoding(t *testing.T) {
	f := newFold()
	f.apply(producerBatch(t, 0, 7, 0, 0, 2))
	f.apply(producerBatch(t, 2, 7, 0, 2, 3))
	f.apply(producerBatch(t, 5, 8, 2, 0, 1))
	g, lastConfig, err := decodeFold(f.encode(42))
	if err != nil {
		t.Fatal(err)
	}
	if lastConfig != 42 || g.maxTime != f.maxTime || len(g.producers) != 2 || *g.producers[7] != *f.producers[7] || *g.producers[8] != *f.producers[8] {
		t.Errorf("decoded %+v with last change %d", g, lastConfig)
	}
	enc := f.encode(42)
	for n := range enc {
		if _, _, err := decodeFold(enc[:n]); !errors.Is(err, errFold) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
}

func TestFoldForgetsTheOldest(t *testing.T) {
	f := newFold()
	for i := range producersMax + 3 {
		f.producers[int64(i)] = &producerState{last: int64(i + 1), n: 1}
		if len(f.producers) > producersMax {
			f.forgetOldest()
		}
	}
	if len(f.producers) != producersMax || f.producers[0] != nil || f.producers[2] != nil || f.producers[3] == nil {
		t.Errorf("%d producers are kept, the oldest among them: %v", len(f.producers), f.producers[0] != nil)
	}
}

func FuzzFold(f *testing.F) {
	full := newFold()
	full.apply(producerBatch(f, 0, 7, 0, 0, 2))
	f.Add(full.encode(1))
	f.Add(newFold().encode(0))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, last, err := decodeFold(b)
		if err != nil {
			return
		}
		if h, again, err := decodeFold(g.encode(last)); err != nil || again != last || len(h.producers) != len(g.producers) {
			t.Fatalf("encoded again it reads %v", err)
		}
	})
}
