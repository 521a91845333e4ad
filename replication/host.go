package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	sm "github.com/lni/dragonboat/v4/statemachine"
	lnivfs "github.com/lni/vfs"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
)

// Sizes of dragonboat's engine. They are constants: dragonboat records the number of step workers and refuses another one, and the machine's
// core count may change.
const (
	execShards     = 4
	applyShards    = 4
	snapshotShards = 8
	closeShards    = 2

	deploymentID     = 1 // equal on every node; clusters are told apart by our own handshake
	keepAllEntries   = 1 << 62
	electionTicks    = 12
	heartbeatTicks   = 1
	maxQueueBytes    = 64 << 20 // of dragonboat's send and receive queues
	campaignInterval = 3 * time.Millisecond
)

// HostConfig says how a node is.
type HostConfig struct {
	// FS is where the files are. Default: the machine's.
	FS vfs.FS
	// Dir is the node's directory. The caller holds its lock.
	Dir string
	// Node is who the directory belongs to, from LoadNode.
	Node NodeIdentity
	// Logger gets what an operator may want to know. Default: nobody.
	Logger *slog.Logger
	// OnEvent is told what happened; it must not block. Default: nobody.
	OnEvent func(Event)
	// JournalBytes is the size of the journal. Default: DefaultJournalBytes; negative: no journal, every log syncs its own files.
	JournalBytes int64
	// DiskReserve is how many bytes of free space are kept: below it nothing is produced. Default: 0.
	DiskReserve int64
	// MaxInFlightBytes bounds the batches in flight in one partition. Default: DefaultMaxInFlightBytes.
	MaxInFlightBytes int64
	// RetentionCheckInterval is how often retention is applied. Default: DefaultRetentionCheckInterval.
	RetentionCheckInterval time.Duration
	// TickInterval is Raft's clock: a silent leader is replaced after 12 to 24 ticks. Default: DefaultTickInterval.
	TickInterval time.Duration
	// ReplicaLagTimeMax is Kafka's replica.lag.time.max.ms: a replica that was silent or behind for longer is not in sync. It also bounds how long
	// an answer waits for min.insync.replicas. Default: DefaultReplicaLagTimeMax; kept between its Min and Max.
	ReplicaLagTimeMax time.Duration
	// CatchUpBytesPerSecond bounds what this node sends to replicas that it brings up to date, together. Default: 0, no bound; otherwise at least
	// 64 KiB/s.
	CatchUpBytesPerSecond int64
	// ScrubBytesPerSecond is how fast the logs are read, in turn, to find damage. Default: DefaultScrubBytesPerSecond; negative: they are not.
	ScrubBytesPerSecond int64
	// Now is the clock. Default: time.Now.
	Now func() time.Time

	// Address is where other nodes reach this one, Rack where it stands. Both are told to the cluster.
	Address, Rack string
	// Endpoints are where this node serves clients, as far as known when it is opened: Controller.SetEndpoints changes them. They are told to the cluster.
	Endpoints []Endpoint

	peers     *peers        // nil: a node alone
	bootID    string        // of the machine; empty: as the system says
	scrubRest time.Duration // between the begins of two rounds of the scrubber
}

// The bounds and defaults of HostConfig.
const (
	DefaultJournalBytes           = 64 << 20
	DefaultMaxInFlightBytes       = 16 << 20
	DefaultRetentionCheckInterval = 30 * time.Second
	DefaultTickInterval           = 200 * time.Millisecond
	DefaultPingInterval           = 400 * time.Millisecond
	DefaultDeadPeerTimeout        = 2 * time.Second // below an election timeout, above the pauses of a busy machine
)

func (c *HostConfig) ensureDefaults() {
	if c.FS == nil {
		c.FS = vfs.OS
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.JournalBytes == 0 {
		c.JournalBytes = DefaultJournalBytes
	}
	if c.MaxInFlightBytes == 0 {
		c.MaxInFlightBytes = DefaultMaxInFlightBytes
	}
	if c.RetentionCheckInterval == 0 {
		c.RetentionCheckInterval = DefaultRetentionCheckInterval
	}
	if c.TickInterval == 0 {
		c.TickInterval = DefaultTickInterval
	}
	if c.ReplicaLagTimeMax == 0 {
		c.ReplicaLagTimeMax = DefaultReplicaLagTimeMax
	}
	c.ReplicaLagTimeMax = min(max(c.ReplicaLagTimeMax, MinReplicaLagTimeMax), MaxReplicaLagTimeMax)
	c.ensureScrubDefaults()
	if c.Now == nil {
		c.Now = time.Now
	}
}

// Host is one node: its NodeHost, its journal and its replicas.
type Host struct {
	cfg    HostConfig
	logger *slog.Logger
	bootID string
	name   string // Raft address

	guard     guard
	db        *logDB
	net       *raftNet
	disk      disk
	elections *elections
	keeper    keeper
	parked    atomic.Int64
	syncs     syncTimes
	jfailed   atomic.Bool

	handlers   sync.Map // requestKind -> requestHandler
	pulls      atomic.Pointer[pullHandler]
	calls      calls
	listeners  atomic.Pointer[[]Endpoint]
	catchUps   *catchUps
	peerStates peerWatchers
	leadership leadershipWatchers
	isr        *isr
	scrubber   *scrubber
	failover   *failover

	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup // the host's goroutines; see spawn
	ops    sync.WaitGroup // calls that change what runs; see begin
	done   chan struct{}  // closed when Close is over

	mu struct {
		sync.Mutex
		closed     bool                  // no further call begins
		over       bool                  // no further goroutine begins
		partitions map[uint64]*Partition // by shard; their files are open, or they are quarantined
		opening    map[uint64]*Partition // whose files are being opened: nobody may look into them yet
		full       map[uint64]*Partition // stopped by a full disk
		campaign   map[*Partition]bool   // single voters that wait to lead
		failed     map[segment.Key]error // whose journal records could not be replayed
	}
	campaignWake chan struct{}
}

// OpenHost opens the node: it replays the journal into all replicas' files and starts Raft, without any partition yet.
func OpenHost(cfg HostConfig) (*Host, error) {
	cfg.ensureDefaults()
	shrinkQueues()
	ctx, cancel := context.WithCancel(context.Background())
	h := &Host{
		cfg: cfg, logger: cfg.Logger, bootID: cmp.Or(cfg.bootID, readBootID()), scrubber: newScrubber(), name: nodeName(cfg.Node.ID),
		disk:      disk{fs: cfg.FS, dir: cfg.Dir, reserve: cfg.DiskReserve},
		elections: newElections(), keeper: keeper{wake: make(chan struct{}, 1)}, isr: newISR(), failover: newFailover(),
		ctx: ctx, cancel: cancel, campaignWake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	h.setEndpoints(cfg.Endpoints)
	h.cfg.FS = timedFS{cfg.FS, &h.syncs}
	h.db = &logDB{host: h}
	h.catchUps = newCatchUps()
	h.serveCatchUps()
	h.serve(requestCall, h.answerCall)
	h.mu.partitions, h.mu.opening = make(map[uint64]*Partition), make(map[uint64]*Partition)
	h.mu.full = make(map[uint64]*Partition)
	h.mu.campaign = make(map[*Partition]bool)
	if err := h.openFiles(); err != nil {
		cancel()
		return nil, err
	}
	subscribeRaftLog(h)
	if err := h.openRaft(); err != nil {
		unsubscribeRaftLog(h)
		cancel()
		return nil, errors.Join(err, h.closeJournal())
	}
	h.disk.look()
	for range electors {
		h.tasks.Go(h.elector)
	}
	h.tasks.Go(h.keep)
	h.tasks.Go(h.housekeep)
	h.tasks.Go(h.campaign)
	h.startScrub()
	h.tasks.Go(h.watchReplicas)
	h.startFailover()
	return h, nil
}

// begin lets a call that changes what runs go on; Close waits until it calls end.
func (h *Host) begin() (end func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return nil, fmt.Errorf("%w: host", ErrClosed)
	}
	h.ops.Add(1)
	return h.ops.Done, nil
}

// spawn runs f on a goroutine that Close waits for, or not at all when Close has waited already.
func (h *Host) spawn(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.over {
		h.tasks.Go(f)
	}
}

func nodeName(id int32) string { return fmt.Sprintf("node-%d", id) }

func (h *Host) now() time.Time { return h.cfg.Now() }

func (h *Host) emit(e Event) {
	if h.cfg.OnEvent == nil {
		return
	}
	e.Time = h.now()
	h.cfg.OnEvent(e)
}

// readBootID tells one run of the machine from another; empty where the system does not say.
func readBootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

const (
	partitionsDir = "partitions"
	journalName   = "journal"
)

func (h *Host) replicaDir(k segment.Key) string {
	return filepath.Join(h.cfg.Dir, partitionsDir, fmt.Sprintf("%d-%d", k.Shard, k.Replica))
}

func generationDir(dir string, generation uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%06d", generation))
}

// resolveDir says where a replica's files are, for the journal's replay.
func (h *Host) resolveDir(k segment.Key, generation uint64, slot bool) (string, bool) {
	dir := h.replicaDir(k)
	if !slot {
		dir = generationDir(dir, generation)
	}
	if info, err := h.cfg.FS.Stat(dir); err != nil || !info.IsDir {
		return "", false
	}
	return dir, true
}

func (h *Host) openFiles() error {
	dir := filepath.Join(h.cfg.Dir, partitionsDir)
	if err := h.cfg.FS.MkdirAll(dir); err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	if err := h.cfg.FS.SyncDir(h.cfg.Dir); err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	if h.cfg.JournalBytes < 0 {
		return nil
	}
	j, stats, err := segment.OpenJournal(segment.JournalOptions{
		FS: h.cfg.FS, Path: filepath.Join(h.cfg.Dir, journalName), HalfBytes: h.cfg.JournalBytes / 2, Logger: h.logger,
	}, h.db)
	if err != nil {
		return err
	}
	h.db.journal = j
	h.mu.failed = stats.Failed
	return nil
}

func (h *Host) closeJournal() error {
	if h.db.journal == nil {
		return nil
	}
	return h.db.journal.Close()
}

// journalFailed notes that group commits go to the files themselves from now on.
func (h *Host) journalFailed(err error) {
	if errors.Is(err, segment.ErrJournalTooLarge) || h.db.journal == nil || h.jfailed.Swap(true) {
		return
	}
	h.logger.Error("the journal is off: every log syncs its own files", "err", err)
	h.emit(Event{Kind: EventJournalOff, Err: err})
}

func (h *Host) openRaft() error {
	nc := config.NodeHostConfig{
		DeploymentID:        deploymentID,
		NodeHostDir:         "/billet", // in memory
		RTTMillisecond:      uint64(h.cfg.TickInterval.Milliseconds()),
		RaftAddress:         h.name,
		RaftEventListener:   h,
		SystemEventListener: memberEvents{host: h},
		MaxSendQueueSize:    maxQueueBytes,
		MaxReceiveQueueSize: maxQueueBytes,
		Expert: config.ExpertConfig{
			LogDBFactory:     logDBFactory{h.db},
			TransportFactory: raftNetFactory{h},
			FS:               lnivfs.NewMem(),
			Engine: config.EngineConfig{
				ExecShards: execShards, CommitShards: 1, ApplyShards: applyShards, SnapshotShards: snapshotShards, CloseShards: closeShards,
			},
		},
	}
	nh, err := newNodeHost(nc)
	if err != nil {
		return fmt.Errorf("replication: starting raft: %w", err)
	}
	h.guard.nh = nh
	return nil
}

func newNodeHost(nc config.NodeHostConfig) (nh *dragonboat.NodeHost, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrFailed, p)
		}
	}()
	return dragonboat.NewNodeHost(nc)
}

func (h *Host) newPartition(spec PartitionSpec) *Partition {
	p := &Partition{host: h, spec: spec}
	p.ctx, p.cancel = context.WithCancel(h.ctx)
	p.settings.Store(&spec.Settings)
	p.floor.Store(spec.start)
	p.mu.pending = make(map[int64]*inFlight)
	p.mu.subs = make(map[int]chan<- struct{})
	p.mu.changed = make(chan struct{})
	p.mu.fold = newFold()
	return p
}

// StartPartition opens the replica's files, making them when they are not there and create says so, and starts its group. Damage in
// the files is no error of the call: the partition comes back quarantined.
func (h *Host) StartPartition(spec PartitionSpec, create bool) (*Partition, error) {
	return h.startPartition(spec, create, false)
}

// startPartition is StartPartition. With doubt, damage is an error of the call, and nothing was done: the replica may not be one any more.
func (h *Host) startPartition(spec PartitionSpec, create, doubt bool) (*Partition, error) {
	end, err := h.begin()
	if err != nil {
		return nil, err
	}
	defer end()
	p := h.newPartition(spec)
	p.life.Lock()
	defer p.life.Unlock()
	if !h.claim(p) {
		p.cancel()
		return nil, fmt.Errorf("replication: shard %d runs already", spec.Shard)
	}
	damage := p.open(create)
	if damage != nil && (doubt || !quarantines(damage)) {
		h.forget(p)
		return nil, damage
	}
	err = h.publish(p)
	switch {
	case err != nil:
	case damage != nil:
		p.quarantine(damage)
	case p.lossy && p.r.hasPeers():
		p.setAside(errLossyTail)
	default:
		err = p.startRaft()
	}
	if err != nil {
		if p.r != nil {
			err = errors.Join(err, p.r.closeFiles(false))
		}
		h.forget(p)
		return nil, err
	}
	return p, nil
}

// startRaft starts the group of a replica whose files are open.
func (p *Partition) startRaft() error {
	h := p.host
	m := &machine{p: p, closed: make(chan struct{})}
	p.machine.Store(m)
	rc := config.Config{
		ShardID: p.spec.Shard, ReplicaID: p.spec.Replica,
		ElectionRTT: electionTicks, HeartbeatRTT: heartbeatTicks, CheckQuorum: true, PreVote: true,
		SnapshotEntries: 0, CompactionOverhead: keepAllEntries, DisableAutoCompactions: true,
		MaxInMemLogSize: uint64(h.cfg.MaxInFlightBytes) + 2*maxMessageBytesMax,
	}
	role := p.r.role()
	rc.IsNonVoting = role == roleLearner
	p.session = h.guard.session(p.spec.Shard)
	p.setVoters(p.r.record().Membership.Addresses)
	err := h.guard.start(role != roleInitial, func(uint64, uint64) sm.IOnDiskStateMachine { return m }, rc)
	if err != nil {
		p.machine.Store(nil)
		return fmt.Errorf("replication: starting %s: %w", p.name(), err)
	}
	if p.r.votesAlone() {
		h.mu.Lock()
		h.mu.campaign[p] = true
		h.mu.Unlock()
		select {
		case h.campaignWake <- struct{}{}:
		default:
		}
	}
	return nil
}

// campaign makes groups with a single voter elect it at once instead of after an election timeout. A shot that comes before the replica is ready
// is ignored, so it is repeated.
func (h *Host) campaign() {
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.campaignWake:
		}
		for h.campaignRound() {
			select {
			case <-h.ctx.Done():
				return
			case <-time.After(campaignInterval):
			}
		}
	}
}

func (h *Host) campaignRound() (more bool) {
	h.mu.Lock()
	waiting := make([]*Partition, 0, len(h.mu.campaign))
	for p := range h.mu.campaign {
		waiting = append(waiting, p)
	}
	h.mu.Unlock()
	for _, p := range waiting {
		_, _, led := h.guard.leader(p.spec.Shard)
		if led || p.stopped() || !p.r.votesAlone() {
			h.mu.Lock()
			delete(h.mu.campaign, p)
			h.mu.Unlock()
			continue
		}
		more = true
		h.net.timeoutNow(p.spec.Shard, p.spec.Replica)
	}
	return more
}

// RemovePartition stops a replica for good and deletes its files. When it fails, it can be called again.
func (h *Host) RemovePartition(ctx context.Context, p *Partition) error {
	end, err := h.begin()
	if err != nil {
		return err
	}
	defer end()
	gone := fmt.Errorf("%w: %s was deleted", ErrUnknownTopic, p.name())
	p.loseLeadership(gone, StateClosed, gone)
	p.cancel()
	p.life.Lock()
	defer p.life.Unlock()
	if err := h.stopRaft(ctx, p); err != nil {
		return err
	}
	if p.r != nil {
		if h.db.journal != nil {
			h.db.journal.Forget(p.spec.key())
		}
		err = p.r.closeFiles(false)
		if errors.Is(err, segment.ErrClosed) || errors.Is(err, fs.ErrClosed) { // by a call before
			err = nil
		}
	}
	if err := h.DeleteReplicaDir(p.spec.key()); err != nil {
		return err
	}
	h.forget(p)
	if err != nil {
		h.logger.Debug("closing the files of a deleted replica", "partition", p.name(), "err", err)
	}
	return nil
}

// DeleteReplicaDir deletes the files of a replica that does not run.
func (h *Host) DeleteReplicaDir(k segment.Key) error {
	dir := h.replicaDir(k)
	if err := h.cfg.FS.RemoveAll(dir); err != nil {
		return fmt.Errorf("replication: deleting %s: %w", dir, err)
	}
	return h.cfg.FS.SyncDir(filepath.Dir(dir))
}

// stopRaft stops the group and waits until its state machine is closed: then dragonboat touches the replica no more.
func (h *Host) stopRaft(ctx context.Context, p *Partition) error {
	m := p.machine.Load()
	if m == nil {
		return nil
	}
	if err := h.guard.stop(p.spec.Shard, p.spec.Replica); err != nil {
		return err
	}
	select {
	case <-m.closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("replication: %s did not stop: %w", p.name(), ctx.Err())
	case <-h.ctx.Done():
		return fmt.Errorf("%w: host", ErrClosed)
	}
}

// replicaFailed follows the latch: the group is stopped, so that dragonboat stops feeding a store that keeps all in memory.
func (h *Host) replicaFailed(p *Partition, cause error, full bool) {
	h.logger.Error("a replica's disk failed: it takes no more, reads go on", "partition", p.name(), "err", cause)
	h.emit(Event{Kind: EventReplicaFailed, Topic: p.spec.Topic, Partition: p.spec.Partition, Err: cause})
	ctx, cancel := context.WithTimeout(h.ctx, snapshotTimeout)
	defer cancel()
	if err := h.stopRaft(ctx, p); err != nil {
		h.logger.Warn("the group of a failed replica did not stop", "partition", p.name(), "err", err)
	} else if full {
		p.leaveJournal() // which would go off when it finds that the replica can't be synced
	}
	if full {
		h.mu.Lock()
		h.mu.full[p.spec.Shard] = p
		h.mu.Unlock()
	}
}

// restartFull opens again, from disk, what a full disk had stopped.
func (h *Host) restartFull() {
	h.mu.Lock()
	list := slices.Collect(maps.Values(h.mu.full))
	clear(h.mu.full)
	h.mu.Unlock()
	for _, p := range list {
		ctx, cancel := context.WithTimeout(h.ctx, snapshotTimeout)
		err := p.restart(ctx)
		cancel()
		if err == nil {
			continue
		}
		h.logger.Warn("a replica that a full disk stopped could not be started again", "partition", p.name(), "err", err)
		h.mu.Lock()
		h.mu.full[p.spec.Shard] = p
		h.mu.Unlock()
	}
}
