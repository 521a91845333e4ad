package billet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/billetlog/billet/transport"
)

// faultKind names what is done to the cluster.
type faultKind string

// The kinds of faults. Those with a duration end by themselves, at the latest with the round.
const (
	faultSplit      faultKind = "split"       // the nodes fall into groups that do not reach each other
	faultOneWay     faultKind = "one-way"     // what one node sends to another does not arrive
	faultFlap       faultKind = "flap"        // the way between two nodes comes and goes
	faultSlowNet    faultKind = "slow-net"    // all ways have delay and little bandwidth
	faultBreakNet   faultKind = "break-net"   // connections break at random
	faultCrash      faultKind = "crash"       // the process is killed: the machine stays up
	faultPowerLoss  faultKind = "power-loss"  // the machine of one node goes down: what is not synced is lost, or some of it
	faultBlackout   faultKind = "blackout"    // all machines go down at once
	faultClose      faultKind = "close"       // the log is closed in order
	faultWipe       faultKind = "wipe"        // a node comes back with an empty disk
	faultFullDisk   faultKind = "full-disk"   // nothing more can be written
	faultSlowDisk   faultKind = "slow-disk"   // writes and syncs take their time
	faultFailSync   faultKind = "fail-sync"   // syncs fail, then the machine is restarted
	faultClock      faultKind = "clock"       // a node's clock jumps
	faultReplicas   faultKind = "replicas"    // a topic gets another number of replicas
	faultReassign   faultKind = "reassign"    // a partition moves to other nodes
	faultDrain      faultKind = "drain"       // a node gives up all it has
	faultPartitions faultKind = "partitions"  // a topic gets one more partition
	faultDamage     faultKind = "damage"      // bytes of a replica's files change, under a log that is open or at rest
	faultTopic      faultKind = "topic"       // a topic is made, and deleted again
	faultRemove     faultKind = "remove-node" // a node is taken out of the cluster, and comes back as a new one
)

// fault is one entry of a schedule.
type fault struct {
	at, lasts time.Duration
	kind      faultKind
	node      int32   // whom it hits; asks for it, for changes of the cluster
	peer      int32   // the other one
	nodes     []int32 // a group, or where to move
	mode      transport.CutMode
	keep      float64 // of what is not synced
	seed      uint64
	jump      time.Duration
	topic     string
	number    int // of a partition or of replicas
	chance    float64
}

func (f fault) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%6s %-11s", f.at.Round(time.Millisecond), f.kind)
	if f.node != 0 {
		fmt.Fprintf(&s, " node %d", f.node)
	}
	if f.peer != 0 {
		fmt.Fprintf(&s, " peer %d", f.peer)
	}
	if len(f.nodes) > 0 {
		fmt.Fprintf(&s, " nodes %v", f.nodes)
	}
	if f.lasts > 0 {
		fmt.Fprintf(&s, " for %s", f.lasts.Round(time.Millisecond))
	}
	switch f.kind {
	case faultSplit, faultOneWay, faultFlap:
		fmt.Fprintf(&s, " %s", [...]string{"", "silent", "refused"}[f.mode])
	case faultPowerLoss, faultBlackout, faultFailSync:
		fmt.Fprintf(&s, " keeps %.1f of what is not synced", f.keep)
	case faultClock:
		fmt.Fprintf(&s, " by %v", f.jump)
	case faultReplicas, faultReassign, faultPartitions:
		fmt.Fprintf(&s, " %s %d", f.topic, f.number)
	case faultSlowNet, faultBreakNet, faultSlowDisk:
		fmt.Fprintf(&s, " %.2f", f.chance)
	}
	return s.String()
}

// round is faults that begin together with a whole cluster and end with one.
type round struct {
	window time.Duration
	faults []fault
}

func (r round) String() string {
	var s strings.Builder
	for _, f := range r.faults {
		fmt.Fprintf(&s, "  %v\n", f)
	}
	return s.String()
}

const (
	harnessNodes      = 5
	harnessWideTopic  = "wide"   // its replicas change
	harnessMainTopic  = "narrow" // three replicas each
	harnessMainParts  = 3
	harnessShortTopic = "short" // its old segments are deleted
	harnessWideParts  = 2
)

// drawRounds draws a schedule from the seed alone: what the system does has no influence on it. Faults that take a node's disk away hit one node in
// each round at most, so that every record that was acknowledged keeps a majority of its replicas.
func drawRounds(seed uint64, rounds int, window time.Duration) (out []round) {
	rng := rand.New(rand.NewPCG(seed, 0x68617264))
	for range rounds {
		d := &scheduleDraw{Rand: rng, window: window, busy: map[int32][][2]time.Duration{}}
		for range 3 + rng.IntN(6) {
			d.add()
		}
		slices.SortStableFunc(d.faults, func(a, b fault) int { return int(a.at - b.at) })
		out = append(out, round{window, d.faults})
	}
	return out
}

// scheduleDraw draws one round.
type scheduleDraw struct {
	*rand.Rand
	window time.Duration
	busy   map[int32][][2]time.Duration // when a node is down or its disk is bad
	lost   bool                         // a disk was taken away
	faults []fault
}

// faultWeights is how often each kind is drawn.
var faultWeights = []struct {
	kind   faultKind
	weight int
}{
	{faultSplit, 4}, {faultOneWay, 3}, {faultFlap, 2}, {faultSlowNet, 2}, {faultBreakNet, 2}, {faultCrash, 5}, {faultPowerLoss, 5}, {faultBlackout, 1},
	{faultClose, 3}, {faultWipe, 3}, {faultFullDisk, 2}, {faultSlowDisk, 3}, {faultFailSync, 2}, {faultClock, 2}, {faultReplicas, 3}, {faultReassign, 3},
	{faultDrain, 2}, {faultPartitions, 1}, {faultRemove, 1}, {faultDamage, 3}, {faultTopic, 2},
}

func (d *scheduleDraw) kind() faultKind {
	sum := 0
	for _, w := range faultWeights {
		sum += w.weight
	}
	n := d.IntN(sum)
	for _, w := range faultWeights {
		if n -= w.weight; n < 0 {
			return w.kind
		}
	}
	return faultCrash
}

// add draws one fault. One that has no place is left out.
func (d *scheduleDraw) add() {
	f := fault{kind: d.kind(), at: d.span(0, d.window*4/5), node: d.anyNode(), seed: d.Uint64()}
	f.lasts = d.span(d.window/20, d.window/2)
	f.mode = transport.CutSilent + transport.CutMode(d.IntN(2))
	f.keep = []float64{0, 0.3, 0.8}[d.IntN(3)]
	f.chance = 0.01 + d.Float64()/5
	f.topic, f.number = harnessWideTopic, d.IntN(harnessWideParts)
	order := d.Perm(harnessNodes)
	for _, i := range order[:2+d.IntN(2)] {
		f.nodes = append(f.nodes, int32(i+1))
	}
	for f.peer = d.anyNode(); f.peer == f.node; f.peer = d.anyNode() {
	}
	f.jump = d.span(0, 100*time.Minute) - 50*time.Minute
	if d.fit(&f) {
		d.faults = append(d.faults, f)
	}
}

// fit takes away what the kind does not use, and says whether the fault can be.
func (d *scheduleDraw) fit(f *fault) bool {
	downs := []int32{f.node}
	switch f.kind {
	case faultSplit:
		f.node, f.peer = 0, 0
		return true
	case faultOneWay, faultFlap:
		f.nodes = nil
		return true
	case faultSlowNet, faultBreakNet:
		f.node, f.peer, f.nodes = 0, 0, nil
		return true
	case faultClock:
		f.peer, f.nodes, f.lasts = 0, nil, 0
		return true
	case faultReplicas:
		f.peer, f.nodes, f.lasts, f.number = 0, nil, 0, 3+2*d.IntN(2)
		return true
	case faultPartitions:
		f.peer, f.nodes, f.lasts, f.topic, f.number = 0, nil, 0, harnessWideTopic, harnessWideParts+1+d.IntN(2)
		return true
	case faultReassign:
		f.peer, f.lasts = 0, 0
		order := d.Perm(harnessNodes)
		f.nodes = []int32{int32(order[0] + 1), int32(order[1] + 1), int32(order[2] + 1)}
		return true
	case faultDrain:
		f.nodes = nil
		return true
	case faultBlackout:
		f.node = 0
		downs = []int32{1, 2, 3, 4, 5}
		f.lasts = min(f.lasts, d.window/5)
	case faultTopic:
		f.nodes = nil
		return true
	case faultWipe, faultFailSync, faultRemove, faultDamage:
		if d.lost {
			return false
		}
	}
	if f.kind != faultRemove {
		f.peer = 0
	}
	f.nodes = nil
	for _, n := range downs {
		if slices.ContainsFunc(d.busy[n], func(b [2]time.Duration) bool { return f.at < b[1] && b[0] < f.at+f.lasts }) {
			return false
		}
	}
	for _, n := range downs {
		d.busy[n] = append(d.busy[n], [2]time.Duration{f.at, f.at + f.lasts})
	}
	d.lost = d.lost || f.kind.takesDisk()
	return true
}

// takesDisk says whether a node loses what it has.
func (k faultKind) takesDisk() bool {
	return k == faultWipe || k == faultFailSync || k == faultRemove || k == faultDamage
}

func (d *scheduleDraw) anyNode() int32 { return int32(d.IntN(harnessNodes) + 1) }

func (d *scheduleDraw) span(from, to time.Duration) time.Duration {
	return from + time.Duration(d.Int64N(int64(to-from)))
}
