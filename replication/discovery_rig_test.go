package replication

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/billetlog/billet/transport"
)

const gossipPatience = 60 * time.Second

// gossipTimings are those of tests: about a tenth of the real ones.
func gossipTimings() discoveryTimings {
	return discoveryTimings{
		probe: 100 * time.Millisecond, probeTimeout: 50 * time.Millisecond, gossip: 20 * time.Millisecond, pushPull: time.Second,
		dead: 300 * time.Millisecond, stream: 500 * time.Millisecond, idle: 2 * time.Second, redial: 50 * time.Millisecond,
		rejoin: 200 * time.Millisecond, joinRetry: 50 * time.Millisecond, leave: time.Second, logEvery: time.Hour,
	}
}

// plane is where nodes of a test listen and dial.
type plane interface {
	Listen(addr string) (net.Listener, error)
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// safeBuffer is a log that a test reads while nodes write it.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.b.String(), text)
}

// gossiper is a node of a test.
type gossiper struct {
	t        *testing.T
	d        *discovery
	listener net.Listener
	log      safeBuffer
	accepted sync.WaitGroup

	mu    sync.Mutex
	alive map[string]peerInfo // as onChange told, by name
	told  int
}

func gossipDir(n byte) (dir [16]byte) {
	for i := range dir {
		dir[i] = n
	}
	return dir
}

// gossip starts a node that listens at addr; change may be nil.
func startGossiper(t *testing.T, p plane, addr string, self peerInfo, seeds []string, change func(*discoveryConfig)) *gossiper {
	t.Helper()
	g := &gossiper{t: t, alive: map[string]peerInfo{}}
	var err error
	if g.listener, err = p.Listen(addr); err != nil {
		t.Fatal(err)
	}
	self.Addr = g.listener.Addr().String()
	cfg := discoveryConfig{
		self: self, label: "test", seeds: seeds, dial: p.Dial, timings: gossipTimings(),
		logger: slog.New(slog.NewTextHandler(&g.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		onChange: func(p peerInfo, alive bool) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.told++
			if alive {
				g.alive[gossipName(p)] = p
			} else {
				delete(g.alive, gossipName(p))
			}
		},
	}
	if change != nil {
		change(&cfg)
	}
	if g.d, err = newDiscovery(cfg); err != nil {
		_ = g.listener.Close()
		t.Fatal(err)
	}
	g.accepted.Go(g.accept)
	t.Cleanup(g.stop)
	return g
}

// accept is what the layer that has the port does.
func (g *gossiper) accept() {
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.accepted.Go(func() { g.d.handle(conn) })
	}
}

// stop closes the node, with good-bye.
func (g *gossiper) stop() {
	if err := g.d.close(context.Background()); err != nil {
		g.t.Error(err)
	}
	_ = g.listener.Close()
	g.accepted.Wait()
}

// kill ends the node without good-bye.
func (g *gossiper) kill() {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = g.listener.Close()
	_ = g.d.close(gone)
	<-g.d.done
	g.accepted.Wait()
}

func (g *gossiper) self() peerInfo { return g.d.peers.self() }

// sees tells whether the node's members, and what it was told of, are exactly these and itself.
func (g *gossiper) sees(others ...peerInfo) bool {
	want := append(slices.Clone(others), g.self())
	slices.SortFunc(want, comparePeers)
	if !slices.Equal(want, g.d.members()) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.alive) != len(others) {
		return false
	}
	for _, o := range others {
		if g.alive[gossipName(o)] != o {
			return false
		}
	}
	return true
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(gossipPatience)
	defer deadline.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !is() {
		select {
		case <-look.C:
		case <-deadline.C:
			t.Fatalf("after %v it is still not so that %s", gossipPatience, what)
		}
	}
}

// together waits until all see each other.
func together(t *testing.T, all ...*gossiper) {
	t.Helper()
	eventually(t, "all see each other", func() bool {
		for _, g := range all {
			var others []peerInfo
			for _, o := range all {
				if o != g {
					others = append(others, o.self())
				}
			}
			if !g.sees(others...) {
				return false
			}
		}
		return true
	})
}

// planes runs a test over each kind of network. Addresses in memory are names, over TCP ports of their own choice.
func planes(t *testing.T, test func(t *testing.T, host func(name string) plane, addr func(name string) string)) {
	t.Run("memory", func(t *testing.T) {
		m := transport.NewMemoryNetwork(1)
		t.Cleanup(func() { _ = m.Close() })
		test(t, func(name string) plane { return m.Host(name) }, func(name string) string { return name + "-listens" })
	})
	t.Run("tcp", func(t *testing.T) {
		test(t, func(string) plane { return transport.TCP{} }, func(string) string { return "127.0.0.1:0" })
	})
}

func fresh(node int32, dir byte) peerInfo {
	return peerInfo{Node: node, Dir: gossipDir(dir), Phase: phaseFresh, Rack: fmt.Sprintf("rack-%d", node)}
}

func formed(p peerInfo) peerInfo {
	p.Phase, p.Cluster = phaseFormed, gossipDir(0xcc)
	return p
}
