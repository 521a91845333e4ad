package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/vfs"
)

// testTimeout is far above what any step takes; a test that reaches it has failed.
const testTimeout = time.Minute

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

type testNode struct {
	t       testing.TB
	fs      vfs.FS
	dir     string
	id      int32
	net     *testNet
	dial    func(id int32) *peers // instead of net
	peers   *peers
	lives   uint64
	journal int64            // bytes; 0: 2 MiB
	now     func() time.Time // nil: the machine's
	lag     time.Duration    // ReplicaLagTimeMax
	tick    time.Duration    // 0: 20 ms
	events  chan Event
	logger  *slog.Logger // nil: one that fails the test when a peer's message is dropped
	host    *Host
}

// identify reads the directory's identity, or makes one of a cluster of one.
func identify(fsys vfs.FS, dir string, id int32) (NodeIdentity, error) {
	n, err := LoadNode(fsys, dir, id)
	if err == nil && n.Cluster == [16]byte{} {
		if err = drawID(&n.Cluster); err == nil {
			err = SaveNode(fsys, dir, n)
		}
	}
	return n, err
}

func (n *testNode) open() {
	n.t.Helper()
	if err := n.fs.MkdirAll(n.dir); err != nil {
		n.t.Fatal(err)
	}
	identity, err := identify(n.fs, n.dir, n.id)
	if err != nil {
		n.t.Fatal(err)
	}
	if n.net != nil {
		identity.Cluster = [16]byte{1} // the nodes of a test form one cluster
		n.lives++
		n.peers = n.net.join(n.id, n.lives)
	}
	if n.dial != nil {
		identity.Cluster = [16]byte{1}
		n.peers = n.dial(n.id)
	}
	if n.journal == 0 {
		n.journal = 2 << 20
	}
	if n.tick == 0 {
		n.tick = 20 * time.Millisecond
	}
	if n.logger == nil {
		n.logger = slog.New(dropWatch{slog.DiscardHandler, n.t})
	}
	n.events = make(chan Event, 1024)
	events := n.events
	n.host, err = OpenHost(HostConfig{
		FS: n.fs, Dir: n.dir, Node: identity, JournalBytes: n.journal, TickInterval: n.tick, ReplicaLagTimeMax: n.lag, peers: n.peers, Now: n.now,
		Logger: n.logger,
		OnEvent: func(e Event) {
			select {
			case events <- e:
			default:
			}
		},
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) close() {
	n.t.Helper()
	if err := n.host.Close(testContext(n.t)); err != nil {
		n.t.Errorf("close: %v", err)
	}
	if n.peers != nil {
		if err := n.peers.node.Close(); err != nil {
			n.t.Errorf("close: %v", err)
		}
	}
}

func newTestNode(t testing.TB) *testNode {
	n := &testNode{t: t, fs: vfs.OS, dir: t.TempDir(), id: 1}
	n.open()
	return n
}

func testSpec(t testing.TB, node int32) PartitionSpec {
	s, err := ParseSettings(nil)
	if err != nil {
		t.Fatal(err)
	}
	return PartitionSpec{Topic: "t", TopicID: [16]byte{7}, Shard: 2, Replica: replicaID(node, 1), Settings: s}
}

func (n *testNode) start(spec PartitionSpec, create bool) *Partition {
	n.t.Helper()
	p, err := n.host.StartPartition(spec, create)
	if err != nil {
		n.t.Fatal(err)
	}
	return p
}

func writable(t testing.TB, p *Partition) {
	t.Helper()
	if err := p.Writable(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

func appendBatch(t testing.TB, p *Partition, b batch.Batch, acks Acks) AppendResult {
	t.Helper()
	done := make(chan AppendResult, 1)
	p.Append(b, AppendOptions{Acks: acks}, func(r AppendResult) { done <- r })
	select {
	case r := <-done:
		return r
	case <-time.After(testTimeout):
		t.Fatal("no answer to an append")
	}
	return AppendResult{}
}

func textBatch(t testing.TB, values ...string) batch.Batch {
	t.Helper()
	var b batch.Builder
	b.Reset(batch.BuilderOptions{})
	for _, v := range values {
		b.Append(time.Now().UnixMilli(), nil, []byte(v), nil)
	}
	out, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// onceBatch makes a batch that may be sent again when its fate is unknown: a replica that has it answers with where it is.
func onceBatch(t testing.TB) func(value string) batch.Batch {
	id := rand.Int64()
	return func(value string) batch.Batch {
		t.Helper()
		var b batch.Builder
		b.Reset(batch.BuilderOptions{HasProducer: true, ProducerID: id})
		b.Append(time.Now().UnixMilli(), nil, []byte(value), nil)
		out, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

// values reads everything from offset to the high watermark.
func values(t testing.TB, p *Partition, offset int64) []string {
	t.Helper()
	c := p.NewCursor()
	defer c.Close()
	var out []string
	for offset < p.HighWatermark() {
		data, err := c.Read(nil, offset, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for len(data) > 0 {
			b, rest, err := batch.Split(data, len(data))
			if err != nil {
				t.Fatal(err)
			}
			recs, err := batch.DecodeAll(b, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range recs {
				if r.Offset != offset {
					t.Fatalf("record at offset %d where %d must be", r.Offset, offset)
				}
				out = append(out, string(r.Value))
				offset++
			}
			data = rest
		}
	}
	return out
}

func waitHW(t testing.TB, p *Partition, hw int64) {
	t.Helper()
	ch := make(chan struct{}, 1)
	defer p.Notify(ch)()
	deadline := time.After(testTimeout)
	for p.HighWatermark() < hw {
		select {
		case <-ch:
		case <-deadline:
			t.Fatalf("high watermark is %d, want %d", p.HighWatermark(), hw)
		}
	}
}

func TestAppendReadReopen(t *testing.T) {
	n := newTestNode(t)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	var want []string
	for i := range 50 {
		v := fmt.Sprint("value-", i)
		want = append(want, v)
		r := appendBatch(t, p, textBatch(t, v), AcksAll)
		if r.Err != nil || r.Offset != int64(i) {
			t.Fatalf("append %d: %+v", i, r)
		}
	}
	for round := range 3 {
		if got := values(t, p, 0); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("round %d: read %v, want %v", round, got, want)
		}
		n.close()
		n.open()
		p = n.start(testSpec(t, 1), false)
		writable(t, p)
		v := fmt.Sprint("round-", round)
		want = append(want, v)
		if r := appendBatch(t, p, textBatch(t, v), AcksAll); r.Err != nil || r.Offset != int64(len(want)-1) {
			t.Fatalf("append after reopen: %+v, want offset %d", r, len(want)-1)
		}
	}
	n.close()
}

func TestManyInFlight(t *testing.T) {
	n := newTestNode(t)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	var mu sync.Mutex
	next := int64(0)
	var wg sync.WaitGroup
	space := make(chan struct{}, 1)
	defer p.Notify(space)()
	for i := range 2000 {
		b := textBatch(t, fmt.Sprint(i))
		for {
			wg.Add(1)
			busy := false
			p.Append(b, AppendOptions{Acks: AcksAll}, func(r AppendResult) {
				defer wg.Done()
				if errors.Is(r.Err, ErrBusy) {
					busy = true // answered before Append returns
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if r.Err != nil || r.Offset != next {
					t.Errorf("answer %+v, want offset %d", r, next)
				}
				next++
			})
			if !busy {
				break
			}
			<-space
		}
	}
	wg.Wait()
	if got := values(t, p, 0); len(got) != 2000 || got[1999] != "1999" {
		t.Fatalf("read %d values", len(got))
	}
	n.close()
}

func TestIdempotentProducer(t *testing.T) {
	n := newTestNode(t)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	now := func(b batch.Batch) batch.Batch { return b }
	check := func(what string, b batch.Batch, offset int64, want error) {
		t.Helper()
		r := appendBatch(t, p, now(b), AcksAll)
		if !errors.Is(r.Err, want) || (want == nil && (r.Err != nil || r.Offset != offset)) {
			t.Fatalf("%s: %+v, want offset %d, error %v", what, r, offset, want)
		}
	}
	check("first", producerBatch(t, 0, 5, 0, 0, 3), 0, nil)
	check("second", producerBatch(t, 0, 5, 0, 3, 2), 3, nil)
	check("duplicate", producerBatch(t, 0, 5, 0, 0, 3), 0, nil)
	check("gap", producerBatch(t, 0, 5, 0, 9, 1), 0, ErrOutOfOrderSequence)
	check("next", producerBatch(t, 0, 5, 0, 5, 1), 5, nil)
	n.close()
	n.open()
	p = n.start(testSpec(t, 1), false)
	writable(t, p)
	check("duplicate after reopen", producerBatch(t, 0, 5, 0, 3, 2), 3, nil)
	check("new epoch", producerBatch(t, 0, 5, 1, 0, 1), 6, nil)
	check("fenced", producerBatch(t, 0, 5, 0, 6, 1), 0, ErrProducerFenced)
	if hw := p.HighWatermark(); hw != 7 {
		t.Fatalf("high watermark %d, want 7: a duplicate was stored", hw)
	}
	n.close()
}
