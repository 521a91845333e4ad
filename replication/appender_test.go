package replication

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/raftio"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/vfs"
)

// gatedNode is a node whose journal can be held up, with one partition that leads.
func gatedNode(t testing.TB, spec PartitionSpec) (*testNode, *Partition, *gate) {
	t.Helper()
	g := &gate{}
	n := memNodeWith(t, vfs.Inject(vfs.NewMem(), g.fault), 0)
	p := n.start(spec, true)
	writable(t, p)
	return n, p, g
}

// hold stops the disk under p: what is appended stays in flight until open is called.
func (g *gate) hold() (held <-chan struct{}, open func()) {
	return g.shut(func(op vfs.Op, name string) bool {
		return op == vfs.OpSync && (strings.Contains(name, "journal") || strings.HasSuffix(name, ".log"))
	})
}

// take waits for an answer.
func take(t testing.TB, answers <-chan AppendResult) AppendResult {
	t.Helper()
	select {
	case r := <-answers:
		return r
	case <-time.After(testTimeout):
		t.Fatal("no answer to an append")
	}
	return AppendResult{}
}

func TestAppendBudgetOfBatches(t *testing.T) {
	n, p, g := gatedNode(t, testSpec(t, 1))
	_, open := g.hold()
	answers := make(chan AppendResult, MaxInFlightBatches)
	for range MaxInFlightBatches {
		p.Append(textBatch(t, "x"), AppendOptions{Acks: AcksAll}, func(r AppendResult) { answers <- r })
	}
	if r := appendBatch(t, p, textBatch(t, "one too many"), AcksAll); !errors.Is(r.Err, ErrBusy) || r.Offset != -1 {
		t.Errorf("one batch too many: %+v", r)
	}
	freed := make(chan struct{}, 1)
	defer p.Notify(freed)()
	open()
	for i := range MaxInFlightBatches {
		if r := take(t, answers); r.Err != nil || r.Offset != int64(i) {
			t.Errorf("answer %d: %+v", i, r)
		}
	}
	<-freed
	if r := appendBatch(t, p, textBatch(t, "after"), AcksAll); r.Err != nil || r.Offset != MaxInFlightBatches {
		t.Errorf("after the others are done: %+v", r)
	}
	n.close()
}

// The bytes in flight are bounded, but one batch goes whatever its size.
func TestAppendBudgetOfBytes(t *testing.T) {
	n, p, g := gatedNode(t, testSpec(t, 1))
	n.host.cfg.MaxInFlightBytes = 100 << 10 // read by appends alone
	_, open := g.hold()
	answers := make(chan AppendResult, 3)
	done := func(r AppendResult) { answers <- r }
	p.Append(sizedBatch(t, 1, 200<<10), AppendOptions{Acks: AcksAll}, done)
	if r := appendBatch(t, p, textBatch(t, "x"), AcksAll); !errors.Is(r.Err, ErrBusy) {
		t.Errorf("beyond the budget: %+v", r)
	}
	open()
	if r := take(t, answers); r.Err != nil || r.Offset != 0 {
		t.Errorf("the large batch: %+v", r)
	}
	_, open = g.hold()
	for range 2 {
		p.Append(sizedBatch(t, 1, 40<<10), AppendOptions{Acks: AcksAll}, done)
	}
	if r := appendBatch(t, p, sizedBatch(t, 1, 40<<10), AcksAll); !errors.Is(r.Err, ErrBusy) {
		t.Errorf("a third one: %+v", r)
	}
	open()
	take(t, answers)
	take(t, answers)
	p.mu.Lock()
	left := p.mu.bytes
	p.mu.Unlock()
	if left != 0 {
		t.Errorf("%d bytes are in flight and nothing is", left)
	}
	n.close()
}

// Acks 0 is answered at once, acks 1 and all not before the disk has the batch; each exactly once and in order.
func TestAppendAcks(t *testing.T) {
	n, p, g := gatedNode(t, testSpec(t, 1))
	held, open := g.hold()
	var mu sync.Mutex
	var order []string
	all := make(chan struct{}, 16)
	for i := range 9 {
		acks := []Acks{AcksAll, AcksNone, AcksLeader}[i%3]
		p.Append(textBatch(t, fmt.Sprint(i)), AppendOptions{Acks: acks}, func(r AppendResult) {
			mu.Lock()
			order = append(order, fmt.Sprintf("%d@%d", i, r.Offset))
			if r.Err != nil {
				t.Errorf("batch %d: %v", i, r.Err)
			}
			mu.Unlock()
			all <- struct{}{}
		})
	}
	<-held
	mu.Lock()
	if got := strings.Join(order, " "); got != "1@-1 4@-1 7@-1" {
		t.Errorf("answered before the disk had anything: %s", got)
	}
	mu.Unlock()
	open()
	for range 9 {
		<-all
	}
	waitHW(t, p, 9)
	mu.Lock()
	defer mu.Unlock()
	for _, acks := range []int{0, 2} {
		last := -1
		for _, o := range order[3:] {
			var i, at int
			if _, err := fmt.Sscanf(o, "%d@%d", &i, &at); err != nil || i != at {
				t.Errorf("answer %s", o)
			}
			if i%3 == acks {
				if i < last {
					t.Errorf("answers are %v", order)
				}
				last = i
			}
		}
	}
	n.close()
}

// A producer sends a batch again while it is in flight: it is stored once, and both are told where.
func TestAppendDuplicateInFlight(t *testing.T) {
	n, p, g := gatedNode(t, testSpec(t, 1))
	_, open := g.hold()
	answers := make(chan AppendResult, 8)
	done := func(r AppendResult) { answers <- r }
	p.Append(textBatch(t, "before"), AppendOptions{Acks: AcksAll}, done)
	for range 3 {
		p.Append(producerBatch(t, 0, 5, 0, 0, 2), AppendOptions{Acks: AcksAll}, done)
	}
	p.Append(producerBatch(t, 0, 5, 0, 2, 1), AppendOptions{Acks: AcksAll}, done)
	// A new epoch begins with the same sequences; it is another batch.
	for range 2 {
		p.Append(producerBatch(t, 0, 5, 1, 0, 2), AppendOptions{Acks: AcksAll}, done)
	}
	if r := appendBatch(t, p, producerBatch(t, 0, 5, 0, 3, 1), AcksAll); !errors.Is(r.Err, ErrProducerFenced) {
		t.Errorf("the old epoch goes on: %+v", r)
	}
	open()
	var got []int64
	for range 7 {
		r := take(t, answers)
		if r.Err != nil {
			t.Error(r.Err)
		}
		got = append(got, r.Offset)
	}
	if fmt.Sprint(got) != "[0 1 1 1 3 4 4]" {
		t.Errorf("offsets are %v", got)
	}
	waitHW(t, p, 6)
	if p.HighWatermark() != 6 {
		t.Errorf("high watermark %d", p.HighWatermark())
	}
	p.mu.Lock()
	defer func() { n.close() }()
	defer p.mu.Unlock()
	if len(p.mu.pending) != 0 {
		t.Errorf("producers in flight: %v", p.mu.pending)
	}
}

// A proposal that is refused leaves the producer's sequence as it was.
func TestAppendRefusedKeepsSequence(t *testing.T) {
	n, p, g := gatedNode(t, testSpec(t, 1))
	_, open := g.hold()
	answers := make(chan AppendResult, 8)
	done := func(r AppendResult) { answers <- r }
	p.Append(producerBatch(t, 0, 5, 0, 0, 1), AppendOptions{Acks: AcksAll}, done)
	w := &waiter{base: 1, next: 2, epoch: p.append.epoch, producer: noProducer}
	if _, _, err := p.enqueue(producerBatch(t, 0, 5, 1, 0, 1), w, done); err != nil {
		t.Fatal(err)
	}
	if !p.unqueue(w) {
		t.Fatal("the refused batch is not the newest")
	}
	p.Append(producerBatch(t, 0, 5, 0, 1, 1), AppendOptions{Acks: AcksAll}, done)
	open()
	for i := range int64(2) {
		if r := take(t, answers); r.Err != nil || r.Offset != i {
			t.Errorf("batch %d: %+v", i, r)
		}
	}
	n.close()
}

func timedBatch(t testing.TB, stamps ...int64) batch.Batch {
	t.Helper()
	var b batch.Builder
	b.Reset(batch.BuilderOptions{})
	for _, s := range stamps {
		b.Append(s, nil, []byte("v"), nil)
	}
	out, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAppendTimestamps(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	n := &testNode{t: t, fs: vfs.NewMem(), dir: "/data", id: 1, now: func() time.Time { return now }}
	n.open()
	ms := now.UnixMilli()
	spec := testSpec(t, 1)
	spec.Settings.TimestampAfterMax, spec.Settings.TimestampBeforeMax = time.Second, time.Minute
	p := n.start(spec, true)
	writable(t, p)
	for _, c := range []struct {
		stamps []int64
		want   error
	}{
		{[]int64{ms}, nil},
		{[]int64{ms + 1000}, nil},
		{[]int64{ms + 1001}, ErrInvalidTimestamp},
		{[]int64{ms, ms + 1001}, ErrInvalidTimestamp},
		{[]int64{ms - 60_000}, nil},
		{[]int64{ms - 60_001}, ErrInvalidTimestamp},
		{[]int64{ms - 60_001, ms}, ErrInvalidTimestamp},
		{[]int64{1 << 60}, ErrInvalidTimestamp},
		{[]int64{0}, ErrInvalidTimestamp},
	} {
		r := appendBatch(t, p, timedBatch(t, c.stamps...), AcksAll)
		if !errors.Is(r.Err, c.want) || (c.want == nil && (r.Err != nil || r.Timestamp != -1)) {
			t.Errorf("%v: %+v", c.stamps, r)
		}
		if c.want != nil && !strings.Contains(r.Err.Error(), "message.timestamp.") {
			t.Errorf("%v does not name the setting", r.Err)
		}
	}
	s := spec.Settings
	s.TimestampAfterMax, s.TimestampBeforeMax = -1, -1
	p.SetSettings(s)
	if r := appendBatch(t, p, timedBatch(t, 0, 1<<60), AcksAll); r.Err != nil {
		t.Errorf("without bounds: %v", r.Err)
	}
	s.LogAppendTime = true
	s.TimestampAfterMax, s.TimestampBeforeMax = 0, 0
	p.SetSettings(s)
	r := appendBatch(t, p, timedBatch(t, 7, 9), AcksAll)
	if r.Err != nil || r.Timestamp != ms {
		t.Fatalf("with the leader's clock: %+v", r)
	}
	data, err := p.NewCursor().Read(nil, r.Offset, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	recs, err := batch.DecodeAll(batch.Batch(data), 1<<20)
	if err != nil || len(recs) != 2 || recs[0].Timestamp != ms || recs[1].Timestamp != ms {
		t.Errorf("stored %v, %v", recs, err)
	}
	n.close()
}

// A batch that is there already is answered with the time when it was appended.
func TestDuplicateHasItsAppendTime(t *testing.T) {
	var ms atomic.Int64
	ms.Store(1_800_000_000_000)
	n := &testNode{t: t, fs: vfs.NewMem(), dir: "/data", id: 1, now: func() time.Time { return time.UnixMilli(ms.Load()) }}
	n.open()
	spec := testSpec(t, 1)
	spec.Settings.LogAppendTime = true
	p := n.start(spec, true)
	writable(t, p)
	for i := range int32(2) {
		if r := appendBatch(t, p, producerBatch(t, 0, 5, 0, 3*i, 3), AcksAll); r.Err != nil || r.Timestamp != ms.Load() {
			t.Fatalf("%+v", r)
		}
		ms.Add(1000)
	}
	for i := range int32(2) {
		want := AppendResult{Offset: int64(3 * i), Timestamp: 1_800_000_000_000 + 1000*int64(i)}
		if r := appendBatch(t, p, producerBatch(t, 0, 5, 0, 3*i, 3), AcksAll); r != want {
			t.Errorf("batch %d again: %+v, want %+v", i, r, want)
		}
	}
	n.close()
}

func TestAppendRefused(t *testing.T) {
	n := memNodeWith(t, vfs.NewMem(), 0)
	spec := testSpec(t, 1)
	spec.Settings.MaxMessageBytes = 2000
	p := n.start(spec, true)
	writable(t, p)
	if r := appendBatch(t, p, sizedBatch(t, 1, 2000), AcksAll); !errors.Is(r.Err, ErrTooLarge) || !strings.Contains(r.Err.Error(), "max.message.bytes is 2000") {
		t.Errorf("too large: %+v", r)
	}
	other := spec
	other.Shard, other.Partition = 3, 1
	q := n.start(other, true)
	writable(t, q)
	if err := n.host.RemovePartition(testContext(t), q); err != nil {
		t.Fatal(err)
	}
	if r := appendBatch(t, q, textBatch(t, "x"), AcksAll); !errors.Is(r.Err, ErrUnknownTopic) {
		t.Errorf("after the deletion: %+v", r)
	}
	n.close()
	for _, acks := range []Acks{AcksAll, AcksLeader, AcksNone} {
		if r := appendBatch(t, p, textBatch(t, "x"), acks); !errors.Is(r.Err, ErrClosed) {
			t.Errorf("after close: %+v", r)
		}
	}
	if err := p.Writable(testContext(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("waiting after close: %v", err)
	}
}

// Batches in flight are answered when the partition is deleted or the host closes under them.
func TestAppendAnsweredAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(n *testNode, p *Partition) error
		want error
	}{
		{"delete", func(n *testNode, p *Partition) error { return n.host.RemovePartition(testContext(n.t), p) }, ErrUnknownTopic},
		{"close", func(n *testNode, _ *Partition) error { return n.host.Close(testContext(n.t)) }, ErrAmbiguous},
		{"latch", func(_ *testNode, p *Partition) error { p.r.latch(errors.New("EIO")); return nil }, ErrAmbiguous},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, p, g := gatedNode(t, testSpec(t, 1))
			held, open := g.hold()
			answers := make(chan AppendResult, 10)
			for range 5 {
				p.Append(textBatch(t, "x"), AppendOptions{Acks: AcksAll}, func(r AppendResult) { answers <- r })
			}
			<-held
			ended := make(chan error, 1)
			go func() { ended <- c.end(n, p) }()
			for range 5 {
				if r := take(t, answers); !errors.Is(r.Err, c.want) || r.Offset != -1 {
					t.Errorf("answered %+v, want %v", r, c.want)
				}
			}
			open()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			_ = n.host.Close(testContext(t))
			if len(answers) != 0 {
				t.Errorf("%d answers too many", len(answers))
			}
		})
	}
}

// A batch that was given up may still take effect: the next one of the epoch waits until that is known, or it would get the same offset and
// be told that it is there.
func TestAppendAfterGivenUp(t *testing.T) {
	n, p, g := gatedNode(t, testSpec(t, 1))
	epoch := p.Epoch()
	held, open := g.hold()
	answers := make(chan AppendResult, 4)
	for _, v := range []string{"first", "second"} {
		p.Append(textBatch(t, v), AppendOptions{Acks: AcksAll}, func(r AppendResult) { answers <- r })
	}
	<-held
	p.loseLeadership(fmt.Errorf("%w: given up", ErrAmbiguous), StateStarting, nil)
	for range 2 {
		if r := take(t, answers); !errors.Is(r.Err, ErrAmbiguous) {
			t.Errorf("given up: %+v", r)
		}
	}
	if !p.hasOrphans(uint64(epoch)) || p.hasOrphans(uint64(epoch)+1) {
		t.Error("what was given up is not remembered for its epoch alone")
	}
	p.host.elect(p, false)
	if r := appendBatch(t, p, textBatch(t, "third"), AcksAll); !errors.Is(r.Err, ErrNotLeader) {
		t.Errorf("while the fate of two batches is open: %+v", r)
	}
	open()
	writable(t, p)
	if p.Epoch() != epoch {
		t.Errorf("epoch %d, was %d", p.Epoch(), epoch)
	}
	r := appendBatch(t, p, textBatch(t, "third"), AcksAll)
	if got := values(t, p, 0); r.Err != nil || r.Offset != 2 || fmt.Sprint(got) != "[first second third]" {
		t.Errorf("answered %+v, stored %v", r, got)
	}
	n.close()
}

// Leadership is lost at random, again and again: every append is answered exactly once, what is acknowledged is there and once, and what is
// refused for certain is not.
func TestAppendRandomLossOfLeadership(t *testing.T) {
	n := memNodeWith(t, vfs.NewMem(), 0)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	const producers, each = 4, 300
	var mu sync.Mutex
	acked, refused := map[string]int64{}, map[string]bool{}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for w := range producers {
		wg.Go(func() {
			freed := make(chan struct{}, 1)
			defer p.Notify(freed)()
			var open sync.WaitGroup
			for i := range each {
				v := fmt.Sprintf("%d-%d", w, i)
				b := textBatch(t, v)
				var answers int
				for {
					busy := make(chan bool, 1)
					open.Add(1)
					p.Append(b, AppendOptions{Acks: AcksAll}, func(r AppendResult) {
						defer open.Done()
						mu.Lock()
						defer mu.Unlock()
						answers++
						switch {
						case r.Err == nil:
							acked[v] = r.Offset
						case errors.Is(r.Err, ErrBusy):
							answers--
							busy <- true
						case !errors.Is(r.Err, ErrAmbiguous):
							refused[v] = true
						}
						if answers > 1 {
							t.Errorf("%s is answered %d times", v, answers)
						}
					})
					if len(busy) == 0 {
						break
					}
					<-freed
				}
			}
			open.Wait()
		})
	}
	loser := make(chan struct{})
	go func() {
		defer close(loser)
		rng := rand.New(rand.NewPCG(1, 2))
		moved := make(chan struct{}, 1)
		defer p.Notify(moved)()
		for {
			select {
			case <-stop:
				return
			default:
			}
			for hw := p.HighWatermark() + rng.Int64N(3); p.HighWatermark() < hw; {
				select {
				case <-moved:
				case <-stop:
					return
				}
			}
			switch rng.IntN(3) {
			case 0:
				p.loseLeadership(fmt.Errorf("%w: by chance", ErrAmbiguous), StateStarting, nil)
				p.host.elect(p, false)
			case 1:
				p.host.elect(p, true)
			case 2:
				l, term, _ := p.host.guard.leader(p.spec.Shard)
				p.host.LeaderUpdated(raftio.LeaderInfo{ShardID: p.spec.Shard, ReplicaID: p.spec.Replica, LeaderID: l, Term: term})
			}
			if p.Writable(context.Background()) != nil {
				return
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-loser
	// A change of leader that was under way may still refuse an append.
	for {
		writable(t, p)
		r := appendBatch(t, p, textBatch(t, "last"), AcksAll)
		if r.Err == nil {
			break
		}
		if !errors.Is(r.Err, ErrNotLeader) {
			t.Fatal(r.Err)
		}
	}
	times := map[string]int{}
	at := map[string]int64{}
	for i, v := range values(t, p, 0) {
		times[v]++
		at[v] = int64(i)
	}
	for v, offset := range acked {
		if times[v] != 1 || at[v] != offset {
			t.Errorf("%s was acknowledged at %d; it is there %d times, at %d", v, offset, times[v], at[v])
		}
	}
	for v := range refused {
		if times[v] != 0 {
			t.Errorf("%s was refused and is there", v)
		}
	}
	t.Logf("%d acknowledged, %d refused, %d stored", len(acked), len(refused), len(at))
	n.close()
}
