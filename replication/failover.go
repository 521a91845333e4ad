package replication

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/billetlog/billet/transport"
)

// A leader whose process ended is replaced at once instead of after an election timeout. The transport knows: a reset connection and then a refused
// one come from the machine that is still there, never from silence. A node that sees this asks the others, and where those that see it too are
// a majority of the voters, they campaign one after the other, so that votes are not split; where the first lacks entries the others refuse
// it, and the next one goes. Raft keeps all of this safe, whoever campaigns when; what is at stake is only that nobody takes the
// lead from a leader that is well, and that a node that is cut off begins no terms.
//
// A node that falls silent, because its process was stopped or the network swallows what it sends, is replaced in the same way: an idle one pings
// several times within DefaultDeadPeerTimeout, whatever its disk does. That is sooner than an election timeout, and the votes are not split.
const (
	failoverStagger = 100 * time.Millisecond // between two ranks: above what a vote takes where a sync is slow
	failoverAgain   = 20 * time.Millisecond  // before a shot is repeated, and twice as long each time: dragonboat ignores one while committed entries are not applied
	failoverShots   = 8                      // campaigns for one replica and loss; the election timeout does the rest
	failoverGroup   = 32                     // groups that campaign together
	failoverPace    = 20 * time.Millisecond  // between two such lots
	failoverCalls   = time.Second            // to tell the other voters of a failed replica
	failoverAsks    = 10                     // rounds in which the other nodes are asked: they may see the end a little later
	failoverAskGap  = 20 * time.Millisecond
	silenceAsks     = 20 // as failoverAsks, for a node that fell silent: the others may have heard its last ping an interval later
	silenceAskGap   = 50 * time.Millisecond
	failoverAskWait = 500 * time.Millisecond // for one answer
)

// kindReplicaGone tells a host that the sender's replica of a group has failed and will not speak again.
const kindReplicaGone requestKind = 'g'

// kindPeerGone asks a host whether it has lost a node too. The answer is one byte.
const kindPeerGone requestKind = 'p'

// loss is a leader's end.
type loss struct {
	node        int32
	incarnation uint64 // of the node that is gone; 0: only one replica is
	silent      bool   // it may be alive
	gone        replicaGone
	agreed      []int32 // nodes that see it too, with this one
	// led are the groups that the node led when it was lost. Later is too late to look: another survivor may have campaigned by then, and lack entries that this
	// replica has.
	led []ledGroup
}

// ledGroup is a group with the leader that was known of it.
type ledGroup struct {
	p      *Partition
	leader uint64
	term   uint64
}

// ledBy lists the groups here that a node leads, as far as is known.
func (h *Host) ledBy(node int32) []ledGroup {
	var out []ledGroup
	for _, p := range h.Partitions() {
		if leader, term, ok := h.guard.leader(p.spec.Shard); ok && nodeOf(leader) == node {
			out = append(out, ledGroup{p, leader, term})
		}
	}
	return out
}

// peerGone is the body of kindPeerGone.
type peerGone struct {
	Node        int32  `json:"node"`
	Incarnation uint64 `json:"incarnation"`
}

// replicaGone is the request's body.
type replicaGone struct {
	Shard   uint64 `json:"shard"`
	Replica uint64 `json:"replica"`
	Term    uint64 `json:"term"`
}

// failover replaces leaders that ended. One goroutine works off its list.
type failover struct {
	wake chan struct{}

	mu struct {
		sync.Mutex
		lost []loss
		// Incarnations of nodes whose end was heard of, and of those that are silent.
		seen, silent map[int32]uint64
	}
}

func newFailover() *failover {
	f := &failover{wake: make(chan struct{}, 1)}
	f.mu.seen, f.mu.silent = make(map[int32]uint64), make(map[int32]uint64)
	return f
}

// failoverQueue bounds the losses that wait. More than that at once is a storm: election timeouts deal with the rest.
const failoverQueue = 4096

// first says whether the loss is heard of for the first time: there is one for each life of a node, and one for each of its silences.
func (f *failover) first(s transport.PeerState) (l loss, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l = loss{node: s.ID, incarnation: s.Incarnation}
	switch {
	case s.Status == transport.PeerReachable:
		delete(f.mu.silent, s.ID)
		return l, false
	case s.Gone() && f.mu.seen[s.ID] < s.Incarnation:
		f.mu.seen[s.ID] = s.Incarnation
		return l, true
	case s.Silent() && f.mu.silent[s.ID] < s.Incarnation:
		f.mu.silent[s.ID], l.silent = s.Incarnation, true
		return l, true
	}
	return l, false
}

func (f *failover) add(l loss) {
	f.mu.Lock()
	if len(f.mu.lost) < failoverQueue {
		f.mu.lost = append(f.mu.lost, l)
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *failover) take() []loss {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.mu.lost
	f.mu.lost = nil
	return list
}

// startFailover begins to listen for losses.
func (h *Host) startFailover() {
	if h.cfg.peers == nil {
		return
	}
	h.peerStates.add(func(s transport.PeerState) {
		if l, ok := h.failover.first(s); ok {
			h.spawn(func() { h.confirmLoss(l) })
		}
	})
	h.serve(kindReplicaGone, h.onReplicaGone)
	h.serve(kindPeerGone, h.onPeerGone)
	h.serve(kindTakeOver, h.onTakeOver)
	h.tasks.Go(h.replaceLeaders)
}

func (h *Host) onReplicaGone(_ context.Context, from int32, payload []byte) ([]byte, error) {
	var g replicaGone
	if err := json.Unmarshal(payload, &g); err != nil {
		return nil, fmt.Errorf("replication: a failed replica's message: %w", err)
	}
	if nodeOf(g.Replica) != from {
		return nil, fmt.Errorf("%w: node %d speaks of replica %x", errPeerMessage, from, g.Replica)
	}
	h.failover.add(h.replicaLoss(from, g))
	return nil, nil
}

// replicaLoss is the loss of a leader whose node goes on.
func (h *Host) replicaLoss(from int32, g replicaGone) loss {
	l := loss{node: from, gone: g, agreed: []int32{h.cfg.Node.ID}}
	p := h.partitionOf(g.Shard)
	if p == nil {
		return l
	}
	if leader, term, ok := h.guard.leader(g.Shard); !ok || leader == g.Replica && term == g.Term { // not known: somebody campaigns already
		l.led = []ledGroup{{p, g.Replica, g.Term}}
	}
	for _, v := range p.voters() { // they were told as well
		if n := nodeOf(v); n != from && n != h.cfg.Node.ID && h.reachable(n) {
			l.agreed = append(l.agreed, n)
		}
	}
	return l
}

func (h *Host) onPeerGone(_ context.Context, _ int32, payload []byte) ([]byte, error) {
	var g peerGone
	if err := json.Unmarshal(payload, &g); err != nil {
		return nil, fmt.Errorf("replication: a question for a lost node: %w", err)
	}
	s := h.cfg.peers.node.PeerState(g.Node)
	lost := s.Status == transport.PeerLost || s.Status == transport.PeerRefusing || s.Status == transport.PeerUnreachable
	if lost || s.Incarnation > g.Incarnation {
		return []byte{1}, nil
	}
	return []byte{0}, nil // who never knew it does not count
}

// confirmLoss asks the nodes that share groups with the lost one until all have lost it too, or enough time has passed.
func (h *Host) confirmLoss(l loss) {
	l.led = h.ledBy(l.node)
	ask := h.neighbours(&l)
	body, err := json.Marshal(peerGone{l.node, l.incarnation})
	if err != nil || len(ask) == 0 {
		return
	}
	l.agreed = []int32{h.cfg.Node.ID}
	asks, gap := failoverAsks, failoverAskGap
	if l.silent {
		asks, gap = silenceAsks, silenceAskGap
	}
	for range asks {
		var wg sync.WaitGroup
		said := make([]bool, len(ask))
		for i, node := range ask {
			wg.Go(func() { said[i] = h.asksGone(node, body) })
		}
		wg.Wait()
		var left []int32
		for i, node := range ask {
			if said[i] {
				l.agreed = append(l.agreed, node)
			} else {
				left = append(left, node)
			}
		}
		ask = left
		if len(ask) == 0 || h.cameBack(l) || !pause(h.ctx, gap) {
			break
		}
	}
	h.failover.add(l)
}

func (h *Host) asksGone(node int32, body []byte) bool {
	ctx, cancel := context.WithTimeout(h.ctx, failoverAskWait)
	defer cancel()
	answer, err := h.call(ctx, node, kindPeerGone, body)
	return err == nil && len(answer) == 1 && answer[0] == 1
}

// neighbours lists the nodes that vote together with the lost one, where that one led, and can be reached.
func (h *Host) neighbours(l *loss) []int32 {
	var list []int32
	for _, g := range l.led {
		for _, v := range g.p.voters() {
			if n := nodeOf(v); n != l.node && n != h.cfg.Node.ID && h.reachable(n) && !slices.Contains(list, n) {
				list = append(list, n)
			}
		}
	}
	return list
}

// succession is one group whose leader ended.
type succession struct {
	p      *Partition
	loss   loss
	leader uint64 // the replica that ended
	term   uint64 // that it led
	heard  uint64 // newest term
	rank   int
	ranks  int // how many campaign in turn
	due    time.Time
	until  time.Time // by then the election timeout has come
	again  time.Duration
	fired  bool // this replica was told to campaign in the term heard
	shots  int  // its campaigns
}

// replaceLeaders works off the losses.
func (h *Host) replaceLeaders() {
	var open []*succession
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.failover.wake:
		case <-timer.C:
		}
		for _, l := range h.failover.take() {
			open = append(open, h.successions(l)...)
		}
		now := time.Now()
		open = slices.DeleteFunc(open, func(s *succession) bool { return !now.Before(s.due) && !h.succeed(s, now) })
		if len(open) == 0 {
			continue
		}
		next := open[0].due
		for _, s := range open {
			if s.due.Before(next) {
				next = s.due
			}
		}
		timer.Reset(max(time.Until(next), 0))
	}
}

// successions lists the groups here that have lost their leader, in the order of their shards, which is that of all survivors: so the first
// in rank is the first in time as well, however many groups there are.
func (h *Host) successions(l loss) []*succession {
	now := time.Now()
	var out []*succession
	for i, g := range l.led {
		rank, ranks, ok := g.p.rank(l)
		if !ok {
			continue
		}
		due := now.Add(time.Duration(i/failoverGroup)*failoverPace + time.Duration(rank)*failoverStagger)
		out = append(out, &succession{
			p: g.p, loss: l, leader: g.leader, term: g.term, heard: g.term, rank: rank, ranks: ranks,
			due: due, until: due.Add(electionTicks * h.cfg.TickInterval), again: failoverAgain,
		})
	}
	return out
}

// rank is this replica's place among the voters that are left, turned by the shard so that not all leaderships fall to one node. It has none when
// it does not vote, or when those left cannot elect anybody: then it is this node that is cut off.
func (p *Partition) rank(l loss) (rank, ranks int, ok bool) {
	var left []uint64
	voters := p.voters()
	for _, v := range voters {
		if n := nodeOf(v); n != l.node && slices.Contains(l.agreed, n) {
			left = append(left, v)
		}
	}
	at := slices.Index(left, p.spec.Replica)
	if at < 0 || len(left) < len(voters)/2+1 {
		return 0, 0, false
	}
	n := len(left)
	return (at + n - int(p.spec.Shard%uint64(n))) % n, n, true
}

// succeed takes the next step for a group; false when there is nothing more to do.
func (h *Host) succeed(s *succession, now time.Time) (more bool) {
	leader, term, ok := h.guard.leader(s.p.spec.Shard)
	switch {
	case s.p.stopped(), s.p.r.latched.Load(), s.shots >= failoverShots, now.After(s.until):
		return false
	case ok && (leader != s.leader || term != s.term): // a leader was found, or the old one was elected again
		return false
	case h.cameBack(s.loss):
		return false
	case term != s.heard: // somebody campaigns
		s.heard = term
		s.due = now.Add(failoverStagger)
		if s.fired { // and was not elected: all others go first, and who split the votes does not do so again
			s.shots++
			s.due = now.Add(time.Duration(s.ranks+s.rank+1) * failoverStagger)
		}
		s.fired, s.again = false, failoverAgain
		return true
	}
	s.fired = true
	s.due = now.Add(s.again)
	s.again = min(2*s.again, failoverStagger)
	if s.shots > 0 {
		h.net.stepDown(s.p.spec.Shard, s.p.spec.Replica, term+1)
	}
	h.net.timeoutNow(s.p.spec.Shard, s.p.spec.Replica)
	return true
}

// cameBack says whether the node answers in the life that was thought to be over. A node that was started anew does not lead.
func (h *Host) cameBack(l loss) bool {
	if l.incarnation == 0 {
		return false
	}
	s := h.cfg.peers.node.PeerState(l.node)
	return s.Status == transport.PeerReachable && s.Incarnation == l.incarnation
}

// tellReplicaGone lets the other voters know that the replica here, which leads, has failed. It is mute by now: nothing that it stored after the fault
// was or will be acknowledged, so whoever follows has all that was.
func (h *Host) tellReplicaGone(p *Partition) {
	leader, term, ok := h.guard.leader(p.spec.Shard)
	if h.cfg.peers == nil || !ok || leader != p.spec.Replica {
		return
	}
	body, err := json.Marshal(replicaGone{p.spec.Shard, p.spec.Replica, term})
	if err != nil {
		h.logger.Warn("the other voters were not told of a failed leader", "partition", p.name(), "err", err)
		return
	}
	for _, v := range p.voters() {
		if v == p.spec.Replica {
			continue
		}
		h.spawn(func() {
			ctx, cancel := context.WithTimeout(h.ctx, failoverCalls)
			defer cancel()
			if _, err := h.call(ctx, nodeOf(v), kindReplicaGone, body); err != nil {
				h.logger.Debug("a voter was not told of a failed leader", "partition", p.name(), "node", nodeOf(v), "err", err)
			}
		})
	}
}
