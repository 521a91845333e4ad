package billet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/billetlog/billet/internal/history"
	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/transport"
)

// harnessHost is a node's name in the network.
func harnessHost(id int32) string { return fmt.Sprintf("node-%d", id) }

func harnessAddress(id int32) string { return harnessHost(id) + ":7400" }

// harnessNode is one machine: a disk and a clock, and on it one process after the other.
type harnessNode struct {
	h     *harness
	id    int32
	clock atomic.Int64 // how far it is ahead, in nanoseconds
	bad   atomic.Pointer[badDisk]

	mu struct {
		sync.Mutex
		disk  *vfs.Mem
		life  *harnessLife // nil while it is down
		lives int
		read  [2]map[history.Partition]int64 // up to where readers got: from leaders, and locally
		away  bool                           // a life is ending in order: the next one has to wait for it
	}
}

// badDisk is what is the matter with a disk.
type badDisk struct {
	failSync bool
	stall    time.Duration // of writes and syncs at most
	chance   float64
	seed     atomic.Uint64
	healed   chan struct{}
}

func (b *badDisk) fault(op vfs.Op) error {
	if op != vfs.OpSync && (op != vfs.OpWrite || b.failSync) {
		return nil
	}
	if b.failSync {
		return syscall.EIO
	}
	rng := rand.New(rand.NewPCG(b.seed.Add(1), 5))
	if rng.Float64() >= b.chance {
		return nil
	}
	timer := time.NewTimer(time.Duration(rng.Int64N(int64(b.stall))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.healed:
	}
	return nil
}

// harnessLife is one process on a machine, from its start to its end.
type harnessLife struct {
	n         *harnessNode
	name      string
	mem       *vfs.Mem
	transport *lifeTransport
	dead      atomic.Bool // it was killed: nobody hears what it says any more
	stop      context.CancelFunc
	ctx       context.Context
	over      chan struct{} // closed when nothing of it runs any more
	tasks     sync.WaitGroup

	mu  sync.Mutex
	log *Log // nil until it is open
}

// start begins a life if there is none.
func (n *harnessNode) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.life != nil || n.mu.away {
		return
	}
	n.mu.lives++
	l := &harnessLife{n: n, name: fmt.Sprintf("%d.%d", n.id, n.mu.lives), mem: n.mu.disk, over: make(chan struct{})}
	l.transport = &lifeTransport{Memory: n.h.net.Host(harnessHost(n.id))}
	l.ctx, l.stop = context.WithCancel(context.Background())
	n.mu.life = l
	n.h.lives.Go(l.run)
}

// run opens the log, until that works, and then uses it until the life ends.
func (l *harnessLife) run() {
	defer close(l.over)
	for !l.dead.Load() && l.ctx.Err() == nil {
		log, err := open(l.config(), l.seams())
		if err == nil {
			l.use(log)
			return
		}
		l.n.h.note("node %s did not open: %v", l.name, err)
		select {
		case <-time.After(100 * time.Millisecond):
		case <-l.ctx.Done():
		}
	}
}

// use works with the log until the life ends, and closes it within a bound.
func (l *harnessLife) use(log *Log) {
	h := l.n.h
	l.mu.Lock()
	l.log = log
	l.mu.Unlock()
	h.note("node %s is open", l.name)
	h.startLoad(l, log)
	<-l.ctx.Done()
	began := time.Now()
	watch := time.AfterFunc(harnessCloseMax, func() {
		h.history.Violate("node %s: Close did not return within %v", l.name, harnessCloseMax)
		h.dumpGoroutines("close of node " + l.name)
	})
	err := log.Close()
	watch.Stop()
	h.note("node %s closed in %v: %v", l.name, time.Since(began).Round(time.Millisecond), err)
	l.tasks.Wait()
}

// harnessCloseMax bounds Close: CloseTimeout, and the work that is not bounded by it on a machine that does much else.
const harnessCloseMax = 40 * time.Second

func (l *harnessLife) config() Config {
	n := l.n
	c := Config{Dir: "/data/log", NodeID: n.id, JournalBytes: 2 << 20, OpenTimeout: 5 * time.Second, CloseTimeout: 10 * time.Second,
		DiskReserve: 1 << 20, OnEvent: l.event, RetentionCheckInterval: 500 * time.Millisecond, ScrubBytesPerSecond: 64 << 20, Logger: n.h.logger(l.name)}
	c.Cluster = Cluster{Listen: harnessAddress(n.id), Transport: l.transport, ReplicaLagTimeMax: time.Second}
	for id := int32(1); id <= harnessNodes; id++ {
		c.Cluster.Bootstrap = append(c.Cluster.Bootstrap, id)
		c.Cluster.Join = append(c.Cluster.Join, harnessAddress(id))
	}
	return c
}

func (l *harnessLife) seams() seams {
	n := l.n
	return seams{
		fs: vfs.Inject(l.mem, func(op vfs.Op, _ string, _ int64, _ int) error {
			if l.dead.Load() && op.Changes() {
				return syscall.EIO
			}
			if b := n.bad.Load(); b != nil {
				return b.fault(op)
			}
			return nil
		}),
		now:  func() time.Time { return time.Now().Add(time.Duration(n.clock.Load())) },
		pace: harnessPace,
	}
}

// harnessPace is quick enough for tests and slow enough for a machine that does much else.
var harnessPace = pace{tick: 30 * time.Millisecond, ping: 200 * time.Millisecond, deadPeer: 2 * time.Second, gossip: 40 * time.Millisecond}

// event notes what must not happen, whatever fails.
func (l *harnessLife) event(e Event) {
	if l.dead.Load() {
		return
	}
	switch {
	case e.Kind == EventInternal:
		l.n.h.history.Violate("node %s: %v", l.name, e)
	case e.Kind == EventQuarantined && !l.n.h.isHarmed(l.n.id):
		l.n.h.history.Violate("node %s, whose disk is good: %v", l.name, e)
	case e.Kind.severe():
		l.n.h.note("node %s: event %v", l.name, e)
	}
}

// opened returns the log if it is open.
func (l *harnessLife) opened() *Log {
	if l == nil || l.dead.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log
}

func (n *harnessNode) log() *Log {
	n.mu.Lock()
	life := n.mu.life
	n.mu.Unlock()
	return life.opened()
}

// kill ends the process: at once for all others, although what is left of it takes some time to stop. The disk is what a crash leaves: with keep
// below 1 a power cut, with wipe an empty one.
func (n *harnessNode) kill(keep float64, seed uint64, wipe bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.mu.life
	if l != nil {
		// What it tells nobody hears, before its disk is copied: else it might tell of what the copy has not.
		l.dead.Store(true)
		l.transport.kill()
		n.h.net.Crash(harnessHost(n.id))
		n.mu.disk = l.mem.CrashClone(vfs.CrashOptions{KeepUnsynced: keep, Rand: rand.New(rand.NewPCG(seed, 9))})
		n.mu.life = nil
		l.stop()
	}
	if wipe && !n.mu.away {
		n.mu.disk = harnessDisk()
	}
}

// shut closes the log in order and waits for that.
func (n *harnessNode) shut() {
	n.mu.Lock()
	l := n.mu.life
	n.mu.life = nil
	if l != nil {
		n.mu.away = true
	}
	n.mu.Unlock()
	if l == nil {
		return
	}
	l.stop()
	<-l.over
	n.mu.Lock()
	n.mu.away = false
	n.mu.Unlock()
}

func harnessDisk() *vfs.Mem {
	m := vfs.NewMem()
	_ = m.MkdirAll("/data")
	m.SyncAll()
	return m
}

// lifeTransport is a process's access to the network, which ends with it.
type lifeTransport struct {
	transport.Memory
	dead atomic.Bool
}

func (t *lifeTransport) kill() { t.dead.Store(true) }

// Listen is that of the network while the process lives.
func (t *lifeTransport) Listen(addr string) (net.Listener, error) {
	if t.dead.Load() {
		return nil, net.ErrClosed
	}
	return t.Memory.Listen(addr)
}

// Dial is that of the network while the process lives.
func (t *lifeTransport) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if t.dead.Load() {
		return nil, net.ErrClosed
	}
	conn, err := t.Memory.Dial(ctx, addr)
	if err == nil && t.dead.Load() {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	return conn, err
}

// harnessLogEnv names a file for what the nodes log.
const harnessLogEnv = "BILLET_HARNESS_LOG"

func (h *harness) logger(name string) *slog.Logger {
	if h.logFile == nil {
		return nil
	}
	return slog.New(slog.NewTextHandler(h.logFile, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", name)
}

func harnessLogFile() (*os.File, error) {
	path := os.Getenv(harnessLogEnv)
	if path == "" {
		return nil, nil
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// node returns the replication layer's node.
func (l *Log) harnessNode() *replication.Node { return l.node.(*machineNode).Node }
