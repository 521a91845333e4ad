package billet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/billetlog/billet/transport"
)

// inject plays a round's faults at their times.
func (h *harness) inject(r round) {
	type turn struct {
		at    time.Duration
		fault *fault
		end   bool
	}
	var turns []turn
	for i := range r.faults {
		f := &r.faults[i]
		if f.at >= r.window {
			continue
		}
		turns = append(turns, turn{f.at, f, false})
		if f.lasts > 0 {
			turns = append(turns, turn{min(f.at+f.lasts, r.window), f, true})
		}
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	began := time.Now()
	for _, t := range turns {
		<-time.After(time.Until(began.Add(t.at)))
		if t.end {
			h.note("ends: %v", t.fault)
			h.endFault(t.fault)
			continue
		}
		h.note("%v", t.fault)
		h.beginFault(t.fault)
	}
	<-time.After(time.Until(began.Add(r.window)))
}

func (h *harness) beginFault(f *fault) {
	if f.node == 0 || !h.beginOnNode(f, h.nodes[f.node-1]) {
		h.beginOnNet(f)
	}
}

// beginOnNode begins a fault of one machine or process.
func (h *harness) beginOnNode(f *fault, n *harnessNode) bool {
	switch f.kind {
	case faultCrash:
		n.kill(1, f.seed, false)
	case faultPowerLoss:
		n.kill(f.keep, f.seed, false)
	case faultWipe:
		h.harm(n.id)
		n.kill(0, f.seed, true)
	case faultClose:
		h.tasks.Go(n.shut)
	case faultFullDisk:
		n.disk(func(m diskOf) { m.SetCapacity(1) })
	case faultSlowDisk:
		b := &badDisk{stall: 400 * time.Millisecond, chance: f.chance, healed: make(chan struct{})}
		b.seed.Store(f.seed)
		n.bad.Store(b)
	case faultFailSync:
		h.harm(n.id)
		n.bad.Store(&badDisk{failSync: true, healed: make(chan struct{})})
	case faultClock:
		n.clock.Add(int64(f.jump))
	case faultDamage:
		h.harm(n.id)
		if f.seed%2 == 0 {
			n.kill(1, f.seed, false)
		}
		n.damage(f.seed)
	case faultReplicas, faultReassign, faultDrain, faultPartitions, faultTopic, faultRemove:
		h.tasks.Go(func() { h.change(f) })
	default:
		return false
	}
	return true
}

func (h *harness) beginOnNet(f *fault) {
	switch f.kind {
	case faultSplit:
		var in, out []string
		for id := int32(1); id <= harnessNodes; id++ {
			if slices.Contains(f.nodes, id) {
				in = append(in, harnessHost(id))
			} else {
				out = append(out, harnessHost(id))
			}
		}
		h.net.Partition(f.mode, in, out)
	case faultOneWay:
		h.net.Cut(harnessHost(f.node), harnessHost(f.peer), f.mode)
	case faultFlap:
		h.net.Flap(harnessHost(f.node), harnessHost(f.peer), f.mode, 200*time.Millisecond, 200*time.Millisecond)
	case faultSlowNet:
		h.net.SetLinks(transport.Link{Delay: 5 * time.Millisecond, Jitter: 40 * time.Millisecond, BytesPerSecond: 2 << 20})
	case faultBreakNet:
		h.net.SetLinks(transport.Link{Break: f.chance / 10, RefuseDial: f.chance})
	case faultBlackout:
		for _, n := range h.nodes {
			n.kill(f.keep, f.seed+uint64(n.id), false)
		}
	}
}

func (h *harness) endFault(f *fault) {
	var n *harnessNode
	if f.node != 0 {
		n = h.nodes[f.node-1]
	}
	switch f.kind {
	case faultSplit, faultOneWay, faultFlap:
		h.net.Heal() // of others, too: what a cut hits is drawn, and how long it lasts at most
	case faultSlowNet, faultBreakNet:
		h.net.SetLinks(transport.Link{})
	case faultCrash, faultPowerLoss, faultWipe, faultDamage:
		n.start()
	case faultClose:
		h.tasks.Go(func() {
			n.shut()
			n.start()
		})
	case faultBlackout:
		for _, n := range h.nodes {
			n.start()
		}
	case faultFullDisk:
		n.disk(func(m diskOf) { m.SetCapacity(0) })
	case faultSlowDisk:
		n.mend()
	case faultFailSync:
		if f.seed%2 == 0 { // else its replicas are replaced under it
			n.kill(f.keep, f.seed, false)
		}
		n.mend()
		n.start()
	case faultTopic:
		h.tasks.Go(func() {
			h.ask(f.peer, func(ctx context.Context, l *Log) error { return l.DeleteTopic(ctx, f.topicName()) })
		})
	case faultDrain:
		h.tasks.Go(func() { h.ask(f.peer, func(ctx context.Context, l *Log) error { return l.ActivateNode(ctx, f.node) }) })
	}
}

// diskOf is what faults change of a disk.
type diskOf interface{ SetCapacity(int64) }

// disk changes the disk that the node has now.
func (n *harnessNode) disk(do func(diskOf)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.life != nil {
		do(n.mu.life.mem)
	}
	do(n.mu.disk)
}

// mend ends what is the matter with the disk.
func (n *harnessNode) mend() {
	if b := n.bad.Swap(nil); b != nil {
		close(b.healed)
	}
}

// topicName is that of the topic that a faultTopic makes.
func (f *fault) topicName() string { return fmt.Sprintf("passing-%d", f.seed%3) }

// damage changes bytes of one of the files that replicas have on the node's disk.
func (n *harnessNode) damage(seed uint64) {
	n.mu.Lock()
	m := n.mu.disk
	n.mu.Unlock()
	rng := rand.New(rand.NewPCG(seed, 11))
	var files []string
	var list func(dir string)
	list = func(dir string) {
		names, _ := m.List(dir)
		for _, name := range names {
			path := filepath.Join(dir, name)
			if info, err := m.Stat(path); err != nil {
				continue
			} else if info.IsDir {
				list(path)
			} else if info.Size > 0 {
				files = append(files, path)
			}
		}
	}
	list("/data/log/partitions")
	if len(files) == 0 {
		return
	}
	name := files[rng.IntN(len(files))]
	file, err := m.Open(name)
	if err != nil {
		return // it was deleted meanwhile
	}
	size, err := file.Size()
	at := rng.Int64N(max(size, 1))
	var b [1]byte
	if err == nil {
		_, err = file.ReadAt(b[:], at)
	}
	if err == nil {
		b[0] ^= 1 << rng.IntN(8)
		_, err = file.WriteAt(b[:], at)
	}
	n.h.damaged.Store(true)
	n.h.note("node %d: byte %d of %d of %s was changed: %v", n.id, at, size, name, errors.Join(err, file.SyncData(), file.Close()))
}

func (h *harness) harm(id int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.harmed[id] = true
}

func (h *harness) isHarmed(id int32) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.harmed[id]
}

const harnessAskMax = 3 * time.Second

// ask makes a node change the cluster. What becomes of it is open under faults.
func (h *harness) ask(node int32, do func(ctx context.Context, l *Log) error) {
	l := h.nodes[node-1].log()
	if l == nil {
		h.note("node %d, which was to change the cluster, is down", node)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), harnessAskMax)
	defer cancel()
	err := do(ctx, l)
	h.note("node %d changed the cluster: %v", node, err)
}

// change makes a change of the cluster.
func (h *harness) change(f *fault) {
	switch f.kind {
	case faultReplicas:
		h.ask(f.node, func(ctx context.Context, l *Log) error {
			return l.AlterTopic(ctx, f.topic, Alter{Replicas: f.number})
		})
	case faultReassign:
		h.ask(f.node, func(ctx context.Context, l *Log) error {
			return l.Reassign(ctx, f.topic, int32(f.number), f.nodes)
		})
	case faultPartitions:
		h.ask(f.node, func(ctx context.Context, l *Log) error { return l.AddPartitions(ctx, f.topic, f.number) })
	case faultTopic:
		h.ask(f.node, func(ctx context.Context, l *Log) error {
			return l.CreateTopic(ctx, Topic{Name: f.topicName(), Partitions: 2, Replicas: 3})
		})
	case faultDrain:
		h.ask(f.peer, func(ctx context.Context, l *Log) error { return l.DrainNode(ctx, f.node) })
	case faultRemove:
		h.harm(f.node)
		h.ask(f.peer, func(ctx context.Context, l *Log) error { return l.RemoveNode(ctx, f.node) })
		n := h.nodes[f.node-1]
		n.kill(0, f.seed, true) // its directory is refused from now on
		n.start()
	}
}

// heal ends all faults and starts what is down.
func (h *harness) heal() {
	h.net.Heal()
	h.net.SetLinks(transport.Link{})
	for _, n := range h.nodes {
		n.mend()
		n.disk(func(m diskOf) { m.SetCapacity(0) })
		n.clock.Store(0)
	}
	h.tasks.Wait()
	for _, n := range h.nodes {
		n.start()
	}
}
