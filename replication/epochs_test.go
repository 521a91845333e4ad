package replication

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/vfs"
)

// checkEpochs holds what a partition says of epochs against its batches.
func checkEpochs(t testing.TB, p *Partition) {
	t.Helper()
	c := p.NewCursor()
	defer c.Close()
	var starts []epochStart
	start, end := p.StartOffset(), p.HighWatermark()
	for at := start; at < end; {
		data, err := c.Read(nil, at, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for len(data) > 0 {
			b, rest, err := batch.Split(data, len(data))
			if err != nil {
				t.Fatal(err)
			}
			if n := len(starts); n == 0 || starts[n-1].epoch != b.LeaderEpoch() {
				starts = append(starts, epochStart{b.LeaderEpoch(), at})
			}
			for ; at < b.NextOffset(); at++ {
				if got := p.EpochAt(at); got != b.LeaderEpoch() {
					t.Fatalf("offset %d is said to be of epoch %d, it is of %d", at, got, b.LeaderEpoch())
				}
			}
			data = rest
		}
	}
	if p.EpochAt(start-1) != -1 || p.EpochAt(end) != -1 {
		t.Errorf("records that are not there have epochs %d and %d", p.EpochAt(start-1), p.EpochAt(end))
	}
	if len(starts) == 0 {
		t.Fatal("there are no records")
	}
	for e := starts[0].epoch - 1; e <= starts[len(starts)-1].epoch+1; e++ {
		epoch, at, ok := p.EpochEnd(e)
		want := fmt.Sprint(0, 0, false)
		for i, s := range starts {
			if s.epoch <= e && i+1 < len(starts) {
				want = fmt.Sprint(s.epoch, starts[i+1].offset, true)
			} else if s.epoch <= e {
				want = fmt.Sprint(s.epoch, end, true)
			}
		}
		if led := p.Epoch(); led > 0 && e >= led {
			want = fmt.Sprint(led, end, true)
		}
		if got := fmt.Sprint(epoch, at, ok); got != want {
			t.Errorf("epoch %d: got %s, want %s of %v", e, got, want, starts)
		}
	}
}

// Replicas know the epochs of their records: leaders and followers, after restarts, and one that got its log as segments.
func TestEpochs(t *testing.T) {
	t.Parallel() // it waits, mostly
	c := newTrio(t)
	defer c.close()
	hw := int64(0)
	check := func(nodes ...int) {
		t.Helper()
		for _, i := range nodes {
			waitHW(t, c.parts[i], hw)
			checkEpochs(t, c.parts[i])
		}
	}
	for round := range 4 {
		c.seize(round % 3)
		hw = c.load(-1, 2+round, 10)
	}
	check(0, 1, 2)
	c.seize(1)
	c.seize(2) // and epochs without records
	check(0, 1, 2)
	c.nodes[0].close()
	c.nodes[0].open()
	c.start(0, false)
	check(0)
	c.seize(0)
	hw = c.load(-1, 2, 10)
	c.raiseFirstIndex(-1)
	i := c.joinNode(vfs.OS, nil)
	c.nodes[i].firstEvent(EventCatchUpDone)
	check(0, 1, 2, i)
	c.nodes[i].close()
	c.nodes[i].open()
	c.startLearner(i, nil, false)
	check(i)
}

// A log's first epochs go with its first segments, and the others are known whatever becomes of the checkpoints.
func TestEpochsAfterRetention(t *testing.T) {
	n := newTestNode(t)
	spec := testSpec(t, 1)
	spec.Settings.SegmentBytes, spec.Settings.RetentionBytes = 64<<10, 200<<10
	p := n.start(spec, true)
	writable(t, p)
	if e, at, ok := p.EpochEnd(p.Epoch() + 1); !ok || e != p.Epoch() || at != 0 {
		t.Errorf("a partition without records: %d, %d, %v", e, at, ok)
	}
	if _, _, ok := p.EpochEnd(0); ok || p.EpochAt(0) != -1 {
		t.Error("a partition without records has one")
	}
	for round := range 5 {
		if round > 0 {
			n.close()
			n.open()
			p = n.start(spec, false)
			writable(t, p)
		}
		checkOnce := round > 0
		for range 15 {
			if r := appendBatch(t, p, sizedBatch(t, 2, 5<<10), AcksAll); r.Err != nil {
				t.Fatal(r.Err)
			}
			if checkOnce {
				checkEpochs(t, p)
				checkOnce = false
			}
		}
	}
	p.retain(testContext(t), time.Now())
	if p.StartOffset() == 0 {
		t.Fatal("retention did nothing")
	}
	checkEpochs(t, p)
	n.close()
	n.open()
	p = n.start(spec, false)
	writable(t, p)
	checkEpochs(t, p)
	p.mu.Lock()
	first := p.mu.fold.epochs[0]
	p.mu.Unlock()
	if next, _, _ := p.EpochEnd(first.epoch); next != first.epoch || len(p.mu.fold.epochs) > 4 {
		t.Errorf("epochs that are gone are kept: %v, the log starts at %d", p.mu.fold.epochs, p.StartOffset())
	}
	n.close()
}

// Epochs are in a fold's encoding, in order, and bounded.
func TestFoldEpochs(t *testing.T) {
	f := newFold()
	for i, e := range []int32{3, 3, 4, 9} {
		b := producerBatch(t, int64(10*i), 7, 0, int32(i), 1)
		b.SetLeaderEpoch(e)
		f.apply(b)
	}
	if want := []epochStart{{3, 0}, {4, 20}, {9, 30}}; !slices.Equal(f.epochs, want) {
		t.Fatalf("epochs %v, want %v", f.epochs, want)
	}
	enc := f.encode(1)
	if g, _, err := decodeFold(enc); err != nil || !slices.Equal(g.epochs, f.epochs) {
		t.Errorf("decoded %v, %v", g.epochs, err)
	}
	copy(enc[len(enc)-epochStartSize:], []byte{0, 0, 0, 4}) // the last epoch is that of the one before
	if _, _, err := decodeFold(enc); !errors.Is(err, errFold) {
		t.Errorf("epochs out of order: %v", err)
	}
	f.forgetEpochs(25)
	if want := []epochStart{{4, 20}, {9, 30}}; !slices.Equal(f.epochs, want) {
		t.Errorf("epochs %v, want %v", f.epochs, want)
	}
	for i := range int32(epochsMax + 5) {
		f.beginEpoch(100+i, int64(100+i))
	}
	if n := len(f.epochs); n != epochsMax || f.epochs[n-1].epoch != 100+epochsMax+4 {
		t.Errorf("%d epochs, the last %v", n, f.epochs[n-1])
	}
}
