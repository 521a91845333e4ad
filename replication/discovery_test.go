package replication

import (
	"bytes"
	"context"
	"net"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/billetlog/billet/transport"
)

// Three nodes find each other from one seed, hear of changes, and of one that leaves.
func TestDiscoveryFromOneSeed(t *testing.T) {
	for name, key := range map[string][]byte{"plain": nil, "encrypted": []byte("sixteen bytes ok")} {
		t.Run(name, func(t *testing.T) {
			planes(t, func(t *testing.T, host func(string) plane, addr func(string) string) {
				keyed := func(c *discoveryConfig) { c.key = key }
				a := startGossiper(t, host("a"), addr("a"), fresh(1, 1), nil, keyed)
				seeds := []string{a.self().Addr}
				b := startGossiper(t, host("b"), addr("b"), fresh(2, 2), seeds, keyed)
				c := startGossiper(t, host("c"), addr("c"), fresh(3, 3), seeds, keyed)
				together(t, a, b, c)

				if err := c.d.update(formed(c.self())); err != nil {
					t.Fatal(err)
				}
				together(t, a, b, c)
				if a.d.members()[2].Phase != phaseFormed {
					t.Fatal("the change did not come through")
				}
				b.stop()
				eventually(t, "one left", func() bool { return a.sees(c.self()) && c.sees(a.self()) })
			})
		})
	}
}

// A seed that is not there yet is found when it comes.
func TestDiscoverySeedComesLater(t *testing.T) {
	m := transport.NewMemoryNetwork(1)
	defer func() { _ = m.Close() }()
	refused := make(chan struct{})
	var once sync.Once
	dial := m.Host("b").Dial
	b := startGossiper(t, m.Host("b"), "b", fresh(2, 2), []string{"a"}, func(c *discoveryConfig) {
		c.dial = func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := dial(ctx, addr)
			if err != nil {
				once.Do(func() { close(refused) })
			}
			return conn, err
		}
	})
	<-refused
	a := startGossiper(t, m.Host("a"), "a", fresh(1, 1), nil, nil)
	together(t, a, b)
}

// After a partition that lasted longer than memberlist remembers the dead, only joining again brings the sides together.
func TestDiscoveryHealsLongPartition(t *testing.T) {
	t.Parallel() // it waits, mostly
	for name, mode := range map[string]transport.CutMode{"silent": transport.CutSilent, "refused": transport.CutRefuse} {
		t.Run(name, func(t *testing.T) {
			m := transport.NewMemoryNetwork(1)
			defer func() { _ = m.Close() }()
			// a knows b only from what it registered, c knows a only as its seed.
			registered := func(c *discoveryConfig) { c.registered = func() []string { return []string{"a", "b", ""} } }
			a := startGossiper(t, m.Host("a"), "a", fresh(1, 1), nil, registered)
			b := startGossiper(t, m.Host("b"), "b", fresh(2, 2), []string{"a"}, nil)
			c := startGossiper(t, m.Host("c"), "c", fresh(3, 3), []string{"a"}, nil)
			together(t, a, b, c)
			m.Partition(mode, []string{"a"}, []string{"b", "c"})
			eventually(t, "both sides forgot the other", func() bool {
				return a.sees() && b.sees(c.self()) && c.sees(b.self()) && len(a.d.peers.snapshotNames()) == 0 &&
					len(b.d.peers.snapshotNames()) == 1 && a.d.list.NumMembers() == 1
			})
			m.Heal()
			together(t, a, b, c)
		})
	}
}

// snapshotNames lists whom the node has not forgotten.
func (g *gossipPeers) snapshotNames() (names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name := range g.mu.peers {
		names = append(names, name)
	}
	return names
}

// A node that comes back at another address, at once and without having said good-bye, is taken for itself.
func TestDiscoveryAddressChanges(t *testing.T) {
	planes(t, func(t *testing.T, host func(string) plane, addr func(string) string) {
		a := startGossiper(t, host("a"), addr("a"), fresh(1, 1), nil, nil)
		b := startGossiper(t, host("b"), addr("b"), fresh(2, 2), []string{a.self().Addr}, nil)
		c := startGossiper(t, host("c"), addr("c"), fresh(3, 3), []string{a.self().Addr}, nil)
		together(t, a, b, c)
		for range 3 {
			old := b.self().Addr
			b.kill()
			b = startGossiper(t, host("b"), addr(t.Name()+old), fresh(2, 2), []string{c.self().Addr}, nil)
			if b.self().Addr == old {
				t.Fatal("the address did not change")
			}
			together(t, a, b, c)
		}
	})
}

// Two directories with one node id are two peers.
func TestDiscoveryOneIDTwice(t *testing.T) {
	m := transport.NewMemoryNetwork(1)
	defer func() { _ = m.Close() }()
	a := startGossiper(t, m.Host("a"), "a", fresh(1, 1), nil, nil)
	b := startGossiper(t, m.Host("b"), "b", fresh(7, 2), []string{"a"}, nil)
	c := startGossiper(t, m.Host("c"), "c", fresh(7, 3), []string{"a"}, nil)
	together(t, a, b, c)
}

// Another label, another key, a key on one side only: nodes stay apart, and each says so, but not each time.
func TestDiscoveryKeepsStrangersApart(t *testing.T) {
	t.Parallel() // it waits, mostly
	one, other := []byte("sixteen bytes ok"), []byte("sixteen bytes no")
	for name, change := range map[string]struct{ a, b func(*discoveryConfig) }{
		"label":         {nil, func(c *discoveryConfig) { c.label = "other" }},
		"key":           {func(c *discoveryConfig) { c.key = one }, func(c *discoveryConfig) { c.key = other }},
		"no key at b":   {func(c *discoveryConfig) { c.key = one }, nil},
		"no key at a":   {nil, func(c *discoveryConfig) { c.key = one }},
		"label and key": {func(c *discoveryConfig) { c.key = one }, func(c *discoveryConfig) { c.key, c.label = one, "other" }},
	} {
		t.Run(name, func(t *testing.T) {
			m := transport.NewMemoryNetwork(1)
			defer func() { _ = m.Close() }()
			a := startGossiper(t, m.Host("a"), "a", fresh(1, 1), nil, change.a)
			var mu sync.Mutex
			dials := 0
			b := startGossiper(t, m.Host("b"), "b", fresh(2, 2), []string{"a"}, func(c *discoveryConfig) {
				if change.b != nil {
					change.b(c)
				}
				dial := c.dial
				c.dial = func(ctx context.Context, addr string) (net.Conn, error) {
					mu.Lock()
					defer mu.Unlock()
					dials++
					return dial(ctx, addr)
				}
			})
			eventually(t, "b tried several times", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return dials >= 5
			})
			if !a.sees() || !b.sees() {
				t.Fatalf("they met: %v, %v", a.d.members(), b.d.members())
			}
			if n := a.log.count("level=WARN"); n < 1 || n > 2 {
				t.Errorf("a warned %d times: %s", n, a.log.b.String())
			}
			if n := b.log.count("level=WARN"); n != 1 {
				t.Errorf("b warned %d times: %s", n, b.log.b.String())
			}
		})
	}
}

// A peer whose record cannot be read is logged and ignored; the others are not disturbed.
func TestDiscoveryIgnoresUnreadableRecords(t *testing.T) {
	m := transport.NewMemoryNetwork(1)
	defer func() { _ = m.Close() }()
	a := startGossiper(t, m.Host("a"), "a", fresh(1, 1), nil, nil)
	b := startGossiper(t, m.Host("b"), "b", fresh(2, 2), []string{"a"}, nil)
	together(t, a, b)
	// A record that says nothing valid: its phase is unknown to the others.
	odd := startGossiper(t, m.Host("c"), "c", fresh(3, 3), nil, nil)
	record := odd.self()
	record.Phase = 99
	odd.d.peers.setSelf(record)
	_ = odd.d.list.UpdateNode(updateBroadcastMax)
	odd.d.joinOne("a")
	eventually(t, "a logged it", func() bool { return a.log.count("bad gossip record") > 0 })
	if !a.sees(b.self()) || !b.sees(a.self()) {
		t.Fatal("it was taken in")
	}
	odd.d.peers.setSelf(fresh(3, 3))
	if err := odd.d.update(peerInfo{Node: 3, Dir: gossipDir(3), Phase: phaseFresh, Addr: "c"}); err != nil {
		t.Fatal(err)
	}
	odd.d.joinOne("a")
	together(t, a, b, odd)
}

// Close comes to an end, and nothing is left of it, whatever goes on: streams that a cut silenced, dials that hang, joins, updates.
func TestDiscoveryCloseWhileAllHangs(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	m := transport.NewMemoryNetwork(1)
	defer func() { _ = m.Close() }()
	slow := func(c *discoveryConfig) {
		c.timings.stream, c.timings.dead, c.timings.leave = time.Minute, time.Minute, 100*time.Millisecond
		c.seeds = append(c.seeds, "nobody", "nobody-2")
	}
	a := startGossiper(t, m.Host("a"), "a", fresh(1, 1), nil, slow)
	b := startGossiper(t, m.Host("b"), "b", fresh(2, 2), []string{"a"}, slow)
	c := startGossiper(t, m.Host("c"), "c", fresh(3, 3), []string{"a"}, slow)
	together(t, a, b, c)
	m.Partition(transport.CutSilent, []string{"a"}, []string{"b"}, []string{"c"})
	var updates sync.WaitGroup
	for range 4 {
		updates.Go(func() {
			for a.d.update(formed(a.self())) != errDiscoveryClosed {
			}
		})
	}
	eventually(t, "somebody is missed", func() bool { return a.sees() && b.sees() && c.sees() })
	var closes sync.WaitGroup
	for _, g := range []*gossiper{a, b, c, a} {
		closes.Go(func() {
			g.stop()
			var text bytes.Buffer
			if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil || strings.Contains(text.String(), g.d.mark) {
				t.Errorf("memberlist runs on after close: %v", err)
			}
		})
	}
	closes.Wait()
	updates.Wait()
	if err := a.d.update(formed(a.self())); err != errDiscoveryClosed {
		t.Fatalf("after close: %v", err)
	}
	near, far := net.Pipe()
	a.d.handle(near) // closes it
	if _, err := far.Write([]byte{1}); err == nil {
		t.Fatal("a closed node took a stream")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	goleak.VerifyNone(t, leaks)
}

// Nodes start and stop around one that stays, all the time.
func TestDiscoveryChurn(t *testing.T) {
	m := transport.NewMemoryNetwork(3)
	defer func() { _ = m.Close() }()
	stays := startGossiper(t, m.Host("stays"), "stays", fresh(1, 1), nil, nil)
	t.Run("nodes", func(t *testing.T) {
		for i := range 4 {
			name := strings.Repeat("x", i+1)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for round := range 6 {
					g := startGossiper(t, m.Host(name), name+":0", fresh(int32(10+i), byte(10+i)), []string{"stays"}, nil)
					if round%2 == 0 {
						eventually(t, "it is seen", func() bool { return len(g.d.members()) > 1 })
					}
					if round%3 == 0 {
						g.kill()
					} else {
						g.stop()
					}
				}
			})
		}
	})
	eventually(t, "all are gone", func() bool { return stays.sees() })
}

func TestDiscoveryConfig(t *testing.T) {
	good := discoveryConfig{
		self: fresh(1, 1), label: "l", onChange: func(peerInfo, bool) {},
		dial: func(context.Context, string) (net.Conn, error) { return nil, net.ErrClosed },
	}
	good.self.Addr = "a"
	for name, spoil := range map[string]func(*discoveryConfig){
		"dial":     func(c *discoveryConfig) { c.dial = nil },
		"onChange": func(c *discoveryConfig) { c.onChange = nil },
		"no label": func(c *discoveryConfig) { c.label = "" },
		"label":    func(c *discoveryConfig) { c.label = strings.Repeat("l", 256) },
		"key":      func(c *discoveryConfig) { c.key = []byte("short") },
		"address":  func(c *discoveryConfig) { c.self.Addr = "" },
		"long":     func(c *discoveryConfig) { c.self.Addr = strings.Repeat("l", 256) },
		"rack":     func(c *discoveryConfig) { c.self.Rack = strings.Repeat("l", 129) },
		"phase":    func(c *discoveryConfig) { c.self.Phase = 0 },
		"cluster":  func(c *discoveryConfig) { c.self.Cluster = gossipDir(1) },
		"dir":      func(c *discoveryConfig) { c.self.Dir = [16]byte{} },
		"node":     func(c *discoveryConfig) { c.self.Node = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			spoil(&cfg)
			if d, err := newDiscovery(cfg); err == nil {
				_ = d.close(context.Background())
				t.Fatal("it was taken")
			}
		})
	}
	d, err := newDiscovery(good)
	if err != nil {
		t.Fatal(err)
	}
	other := good.self
	other.Node = 2
	if d.update(other) == nil || d.update(peerInfo{}) == nil {
		t.Error("the node became another")
	}
	if err := d.close(context.Background()); err != nil {
		t.Fatal(err)
	}
}
