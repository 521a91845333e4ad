package transport

import (
	"math/rand/v2"
	"net"
	"syscall"
	"time"
)

// SetLink changes how one direction behaves, for connections that stand, too.
func (m *MemoryNetwork) SetLink(from, to string, link Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.links[route{from, to}] = link
	m.relinkLocked()
}

// SetLinks changes how all directions behave that SetLink was not called for.
func (m *MemoryNetwork) SetLinks(link Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.standard = link
	m.relinkLocked()
}

func (m *MemoryNetwork) relinkLocked() {
	for l := range m.mu.lanes {
		link := m.linkLocked(l.route)
		l.change(func() { l.link = link })
	}
}

// Cut cuts one direction, or heals it with CutNone.
func (m *MemoryNetwork) Cut(from, to string, mode CutMode) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cutLocked(route{from, to}, mode)
	m.appliedLocked()
}

// cutLocked records a cut; appliedLocked makes it felt.
func (m *MemoryNetwork) cutLocked(r route, mode CutMode) {
	if mode == CutNone {
		delete(m.mu.cuts, r)
		return
	}
	m.mu.cuts[r] = mode
}

func (m *MemoryNetwork) appliedLocked() {
	for l := range m.mu.lanes {
		held := m.mu.cuts[l.route] == CutSilent
		l.change(func() { l.held = held })
		if m.mu.cuts[l.route] == CutRefuse || m.mu.cuts[route{l.route.to, l.route.from}] == CutRefuse {
			l.breakWith(syscall.ECONNRESET)
		}
		l.mu.Lock()
		if l.finishedLocked() {
			delete(m.mu.lanes, l)
		}
		l.mu.Unlock()
	}
	close(m.mu.changed)
	m.mu.changed = make(chan struct{})
}

// Partition splits the hosts into groups that do not reach each other: every direction between two groups is cut. Directions within a
// group, and hosts in none, are left as they are.
func (m *MemoryNetwork) Partition(mode CutMode, groups ...[]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, group := range groups {
		for j, other := range groups {
			if i == j {
				continue
			}
			for _, a := range group {
				for _, b := range other {
					m.cutLocked(route{a, b}, mode)
				}
			}
		}
	}
	m.appliedLocked()
}

// Heal ends all cuts and all flapping. Links stay as they are.
func (m *MemoryNetwork) Heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for f := range m.mu.flaps {
		m.unflapLocked(f)
	}
	clear(m.mu.cuts)
	m.appliedLocked()
}

// Reset breaks the connections between two hosts, once.
func (m *MemoryNetwork) Reset(a, b string) {
	m.breakAll(func(r route) bool { return r == route{a, b} || r == route{b, a} }, syscall.ECONNRESET)
}

// Crash ends a host as kill -9 does: its listeners are closed, then its connections reset. It may listen again at once.
func (m *MemoryNetwork) Crash(host string) {
	m.mu.Lock()
	var listeners []*memoryListener
	for _, l := range m.mu.listeners {
		if l.host == host {
			listeners = append(listeners, l)
		}
	}
	m.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close()
	}
	m.breakAll(func(r route) bool { return r.from == host || r.to == host }, syscall.ECONNRESET)
}

// breakAll breaks the lanes of some routes. Where a silent cut holds, that is seen after it.
func (m *MemoryNetwork) breakAll(which func(route) bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.mu.lanes {
		if which(l.route) {
			l.breakWith(err)
		}
	}
}

// flap cuts and heals two directions in turn.
type flap struct {
	routes   [2]route
	mode     CutMode
	up, down time.Duration
	rng      *rand.Rand
	timer    *time.Timer
	cut      bool
}

// Flap cuts both directions between two hosts for about down, heals them for about up, and so on until stop is called, beginning with a
// cut; each time is between a half and one and a half of what is given, by the seed. Stop heals.
func (m *MemoryNetwork) Flap(a, b string, mode CutMode, up, down time.Duration) (stop func()) {
	f := &flap{routes: [2]route{{a, b}, {b, a}}, mode: mode, up: max(up, time.Millisecond), down: max(down, time.Millisecond)}
	f.rng = rand.New(rand.NewPCG(m.seed, sum64(sum64(3, []byte(a)), []byte(b))))
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mu.closed {
		m.mu.flaps[f] = struct{}{}
		m.turnLocked(f)
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.unflapLocked(f)
		m.appliedLocked()
	}
}

// turnLocked cuts what is healed and heals what is cut, and sets the timer for the next turn.
func (m *MemoryNetwork) turnLocked(f *flap) {
	f.cut = !f.cut
	mode, span := f.mode, f.down
	if !f.cut {
		mode, span = CutNone, f.up
	}
	for _, r := range f.routes {
		m.cutLocked(r, mode)
	}
	m.appliedLocked()
	span = span/2 + time.Duration(f.rng.Int64N(int64(span)+1))
	f.timer = time.AfterFunc(span, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if _, ok := m.mu.flaps[f]; ok {
			m.turnLocked(f)
		}
	})
}

// unflapLocked ends flapping, if it lasts.
func (m *MemoryNetwork) unflapLocked(f *flap) {
	if _, ok := m.mu.flaps[f]; !ok {
		return
	}
	delete(m.mu.flaps, f)
	f.timer.Stop()
	for _, r := range f.routes {
		m.cutLocked(r, CutNone)
	}
}

// Close ends all cuts, closes all listeners and breaks all connections.
func (m *MemoryNetwork) Close() error {
	m.Heal()
	m.mu.Lock()
	m.mu.closed = true
	var listeners []*memoryListener
	for _, l := range m.mu.listeners {
		listeners = append(listeners, l)
	}
	m.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close()
	}
	m.breakAll(func(route) bool { return true }, net.ErrClosed)
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.mu.lanes)
	return nil
}
