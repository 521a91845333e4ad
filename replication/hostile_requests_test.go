package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/transport"
)

// requestTape keeps requests that nodes asked each other, by kind.
type requestTape struct {
	mu   sync.Mutex
	kept map[requestKind][][]byte
}

// listen keeps what a host is asked from now on.
func (c *requestTape) listen(h *Host) {
	h.handlers.Range(func(k, f any) bool {
		kind, handle := k.(requestKind), f.(requestHandler)
		h.serve(kind, func(ctx context.Context, from int32, payload []byte) ([]byte, error) {
			c.mu.Lock()
			if len(c.kept[kind]) < tapePerKind {
				c.kept[kind] = append(c.kept[kind], slices.Clone(payload))
			}
			c.mu.Unlock()
			return handle(ctx, from, payload)
		})
		return true
	})
}

// mangle returns a request like those of its kind, or nothing like them.
func mangle(rng *rand.Rand, kept [][]byte) []byte {
	if len(kept) == 0 || rng.IntN(8) == 0 {
		b := make([]byte, rng.IntN(200))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	b := slices.Clone(kept[rng.IntN(len(kept))])
	for range 1 + rng.IntN(3) {
		at := rng.IntN(len(b) + 1)
		switch rng.IntN(6) {
		case 0:
			b = b[:at]
		case 1:
			b = slices.Insert(b, at, byte(rng.Uint32()))
		case 2: // a number becomes another one
			if at < len(b) && b[at] >= '0' && b[at] <= '9' {
				b[at] = '0' + byte(rng.IntN(10))
			}
		case 3:
			for i := at; i < min(at+8, len(b)); i++ {
				b[i] = 0xff
			}
		default:
			if at < len(b) {
				b[at] ^= 1 << rng.IntN(8)
			}
		}
	}
	return b
}

// A node asks the others for everything that nodes may ask each other for, in words that make no sense: they refuse it, and go on. What members decide
// together is left out: an administrator may do the same on any node.
func TestSenselessRequests(t *testing.T) {
	const seed = 40
	rng := rand.New(rand.NewPCG(seed, 1))
	n := newMemberNet(t)
	fs := []*vfs.Mem{vfs.NewMem(), vfs.NewMem(), vfs.NewMem()}
	all := n.trioOf(2, fs...)
	tape := &requestTape{kept: map[requestKind][][]byte{}}
	for _, m := range all {
		tape.listen(m.Host)
	}
	want := []string{}
	write := func() {
		v := fmt.Sprint("v", len(want))
		produceTo(t, all, 0, v)
		want = append(want, v)
	}
	write()
	if _, err := all[1].Controller.CreateTopic(testContext(t), TopicSpec{Name: "more", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	if err := all[0].Controller.SetReplicas(testContext(t), "more", 2); err != nil {
		t.Fatal(err)
	}
	before := measure()
	liar := all[2].Host.cfg.peers.node
	ask := func(to int32, payload []byte) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		_, err := liar.Call(ctx, to, payload)
		if errors.Is(err, transport.ErrConnLost) || errors.Is(err, transport.ErrClosed) {
			t.Fatalf("asking node %d for %x: %v", to, payload, err)
		}
	}
	tape.mu.Lock()
	kept := maps.Clone(tape.kept)
	for kind := range kept {
		kept[kind] = slices.Clone(kept[kind])
	}
	tape.mu.Unlock()
	delete(kept, requestDecide)
	for i := range hostileRounds(1500) {
		kind := requestKind(rng.IntN(40))
		if kind == requestDecide && i%8 != 0 {
			continue
		}
		ask(1+int32(i%2), append([]byte{byte(kind)}, mangle(rng, kept[kind])...))
		if i%300 == 0 {
			write()
		}
	}
	ask(1, nil)
	for range 100 {
		hostilePull(t, rng, liar, 1+rng.Int32N(2))
	}
	write()
	before.bounded(t)
	for _, m := range all {
		if p := m.Host.parked.Load(); p != 0 {
			t.Errorf("node %d: %d workers of Raft are parked", m.cfg.ID, p)
		}
		m.holds(0, want...)
	}
	for _, m := range all {
		m.close()
	}
	again := n.trioOf(0, fs...)
	for _, m := range again {
		m.until("the topic", func(c *Controller) bool {
			return c.mu.topics["t"] != nil && c.mu.partitions[c.mu.topics["t"].Partitions[0].Shard] != nil
		})
		m.holds(0, want...)
	}
	for _, m := range again {
		m.close()
	}
}

// hostilePull asks for a range of what was never offered.
func hostilePull(t *testing.T, rng *rand.Rand, n *transport.Node, to int32) {
	t.Helper()
	name := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, rng.Uint64N(4)), rng.Uint32N(3))
	switch rng.IntN(4) {
	case 0:
		name = name[:rng.IntN(len(name))]
	case 1:
		name = append(name, "/../../data/meta"...)
	case 2:
		binary.BigEndian.PutUint64(name, rng.Uint64())
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	p, err := n.Pull(ctx, to, transport.PullRequest{Payload: name, Offset: int64(rng.Uint64() >> 1 >> rng.IntN(63)), Length: int64(rng.Uint64() >> 1 >> rng.IntN(63))})
	if err != nil {
		return
	}
	if got, err := io.ReadAll(p); err == nil {
		t.Errorf("a pull of %x gave %d bytes", name, len(got))
	}
	_ = p.Close()
}
