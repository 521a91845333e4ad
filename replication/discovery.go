package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// discoveryConfig is what discovery needs. dial, onChange and registered are called on goroutines of discovery.
type discoveryConfig struct {
	self  peerInfo
	label string // keeps gossip of one cluster from that of another; 1 to 255 bytes
	key   []byte // nil: gossip is not encrypted; else 16, 24 or 32 bytes
	seeds []string
	// dial opens a stream to a node, whose side hands it to handle. It must end with ctx.
	dial func(ctx context.Context, addr string) (net.Conn, error)
	// registered returns addresses of nodes that are known otherwise, to find them again after a partition. May be nil.
	registered func() []string
	// onChange is told of peers that came, changed or went, one call at a time; of several changes of one peer only the last may be told.
	// It must not call close.
	onChange func(p peerInfo, alive bool)
	logger   *slog.Logger
	timings  discoveryTimings
}

// discoveryTimings are how fast gossip goes. Zero fields get their default.
type discoveryTimings struct {
	probe, probeTimeout time.Duration // one peer is probed every 500 ms, and suspected after 250 ms without an answer
	gossip              time.Duration // news are sent every 200 ms
	pushPull            time.Duration // all is exchanged with one peer every 30 s
	dead                time.Duration // the dead are told so for 30 s, then forgotten
	stream              time.Duration // a dial, a message or an answer may take 5 s
	idle                time.Duration // a stream for packets is closed after 30 s without one
	redial              time.Duration // packets are dropped for 500 ms after a failed dial
	rejoin              time.Duration // addresses that are not among the alive are joined every 10 s
	joinRetry           time.Duration // every 1 s while no peer is known
	leave               time.Duration // close takes 500 ms at most to say good-bye
	logEvery            time.Duration // a warning is repeated after 30 s
}

func (t discoveryTimings) withDefaults() discoveryTimings {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.probe, 500 * time.Millisecond}, {&t.probeTimeout, 250 * time.Millisecond}, {&t.gossip, 200 * time.Millisecond}, {&t.pushPull, 30 * time.Second},
		{&t.dead, 30 * time.Second}, {&t.stream, 5 * time.Second}, {&t.idle, 30 * time.Second}, {&t.redial, 500 * time.Millisecond},
		{&t.rejoin, 10 * time.Second}, {&t.joinRetry, time.Second}, {&t.leave, 500 * time.Millisecond}, {&t.logEvery, 30 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	return t
}

// atPace are the defaults with what depends on how often news are sent in proportion to that. Zero changes nothing.
func (t discoveryTimings) atPace(gossip time.Duration) discoveryTimings {
	t = t.withDefaults()
	if gossip <= 0 {
		return t
	}
	normal := t.gossip
	for _, d := range []*time.Duration{&t.probe, &t.probeTimeout, &t.gossip, &t.pushPull, &t.dead, &t.redial, &t.rejoin, &t.joinRetry, &t.leave} {
		*d = time.Duration(float64(*d) * float64(gossip) / float64(normal))
	}
	return t
}

const (
	gossipPacketSize   = 16 << 10 // streams have no MTU: more news in one packet than the 1,400 bytes for UDP
	gossipSlowdownMax  = 2        // a node that finds itself slow probes that much slower; a probe has to end before close does
	joinTargetsMax     = 16       // addresses of one round, drawn at random
	joinParallelMax    = 4
	updateAttemptsMax  = 8
	updateBroadcastMax = time.Millisecond // the record stays in memberlist's queue, so there is nothing to wait for
)

var (
	errDiscoveryConfig = errors.New("bad configuration of gossip")
	errDiscoveryClosed = errors.New("gossip is closed")
)

func (cfg discoveryConfig) valid() error {
	switch {
	case cfg.dial == nil || cfg.onChange == nil:
		return fmt.Errorf("%w: dial and onChange must be set", errDiscoveryConfig)
	case cfg.label == "" || len(cfg.label) > memberlist.LabelMaxSize:
		return fmt.Errorf("%w: the label must have 1 to %d bytes, has %d", errDiscoveryConfig, memberlist.LabelMaxSize, len(cfg.label))
	case len(cfg.key) > 0 && memberlist.ValidateKey(cfg.key) != nil:
		return fmt.Errorf("%w: the key must have 16, 24 or 32 bytes, has %d", errDiscoveryConfig, len(cfg.key))
	}
	return cfg.self.valid()
}

// discovery finds the other nodes by gossip: which there are, where they listen, and whether they seem alive. It decides nothing, and nothing
// else is in gossip. Liveness is a hint; the transport knows better of those that it is connected to. Safe for concurrent use.
type discovery struct {
	cfg       discoveryConfig
	peers     *gossipPeers
	log       *gossipLog
	transport *gossipTransport
	list      *memberlist.Memberlist
	mark      string // labels memberlist's goroutines

	ctx    context.Context // ends when close begins
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// update is one at a time: memberlist reads this node's state without its lock.
	updating struct {
		sync.Mutex
		closed bool
	}
	closing sync.Once
	done    chan struct{} // closed when all is over
}

// newDiscovery starts gossip. It does not wait for peers: joining goes on in the background until close.
func newDiscovery(cfg discoveryConfig) (*discovery, error) {
	if err := cfg.valid(); err != nil {
		return nil, err
	}
	cfg.timings = cfg.timings.withDefaults()
	cfg.seeds = slices.Clone(cfg.seeds)
	d := &discovery{
		cfg:   cfg,
		peers: newGossipPeers(cfg.self),
		log:   newGossipLog(cfg.logger, cfg.timings.logEvery),
		mark:  fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()),
		done:  make(chan struct{}),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.transport = newGossipTransport(cfg, d.peers, d.log, d.ctx)
	var err error
	if d.list, err = startMarked(d.mark, d.listConfig()); err != nil {
		d.cancel()
		_ = d.transport.Shutdown()
		return nil, fmt.Errorf("gossip of %s: %w", d.peers.name, err)
	}
	d.wg.Add(2)
	go d.tell()
	go d.join()
	return d, nil
}

// listConfig is memberlist's configuration.
func (d *discovery) listConfig() *memberlist.Config {
	t := d.cfg.timings
	c := memberlist.DefaultLANConfig()
	c.Name = d.peers.name
	c.Transport = d.transport
	c.BindPort, c.AdvertisePort = gossipPort, gossipPort
	c.Label, c.SecretKey = d.cfg.label, slices.Clone(d.cfg.key)
	c.LogOutput = d.log
	delegate := gossipDelegate{d.peers}
	c.Delegate, c.Events, c.Alive = delegate, delegate, delegate
	c.EnableCompression = false // records are small; what others would compress is refused
	c.UDPBufferSize = gossipPacketSize
	c.AwarenessMaxMultiplier = gossipSlowdownMax
	c.ProbeInterval, c.ProbeTimeout = t.probe, t.probeTimeout
	c.GossipInterval, c.PushPullInterval, c.GossipToTheDeadTime = t.gossip, t.pushPull, t.dead
	c.TCPTimeout = t.stream
	return c
}

// handle serves a stream that another node's discovery dialled, until it ends. The stream is closed then.
func (d *discovery) handle(conn net.Conn) { d.transport.handle(conn) }

// members lists the nodes that seem alive, this one included, by id and directory.
func (d *discovery) members() []peerInfo { return d.peers.alive() }

// update changes what this node tells of itself and spreads it. Its id and its directory cannot change.
func (d *discovery) update(self peerInfo) error {
	if err := self.valid(); err != nil {
		return err
	}
	if gossipName(self) != d.peers.name || self.Dir != d.cfg.self.Dir {
		return fmt.Errorf("%w: a node cannot become another (%s, %s)", errPeerRecord, d.peers.name, gossipName(self))
	}
	d.updating.Lock()
	defer d.updating.Unlock()
	if d.updating.closed {
		return errDiscoveryClosed
	}
	d.peers.setSelf(self)
	want := encodePeer(self)
	for range updateAttemptsMax {
		// An error tells only that the broadcast did not end in time.
		_ = d.list.UpdateNode(updateBroadcastMax)
		// memberlist drops the change when it refutes an accusation at the same moment.
		if slices.Equal(d.list.LocalNode().Meta, want) {
			return nil
		}
	}
	return fmt.Errorf("gossip of %s: memberlist did not take over the new record; try again", d.peers.name)
}

// tell calls onChange.
func (d *discovery) tell() {
	defer d.wg.Done()
	for {
		select {
		case <-d.peers.changed:
		case <-d.ctx.Done():
			return
		}
		for _, c := range d.peers.changes() {
			if d.ctx.Err() != nil {
				return
			}
			d.cfg.onChange(c.info, c.alive)
		}
	}
}

// close says good-bye, ends gossip and waits for all of its goroutines, or for ctx; after that they end by themselves, soon.
func (d *discovery) close(ctx context.Context) error {
	d.closing.Do(func() {
		polite := d.cfg.timings.leave
		if deadline, ok := ctx.Deadline(); ok {
			polite = min(polite, time.Until(deadline)/2)
		}
		if ctx.Err() != nil {
			polite = 0
		}
		go d.shutdown(polite)
	})
	select {
	case <-d.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("gossip of %s: closing goes on in the background: %w", d.peers.name, context.Cause(ctx))
	}
}

// shutdown ends everything in order. It ends done.
func (d *discovery) shutdown(polite time.Duration) {
	defer close(d.done)
	d.updating.Lock()
	d.updating.closed = true
	d.updating.Unlock()
	d.log.quiet.Store(true)
	d.cancel()
	if polite > 0 {
		// An error tells that nobody was reached in time: they will find out.
		_ = d.list.Leave(polite)
	}
	_ = d.list.Shutdown() // gossipTransport's never fails
	d.wg.Wait()
	t := d.cfg.timings
	waitMarked(d.mark, 2*(gossipSlowdownMax*t.probe+t.probeTimeout+t.stream))
}
