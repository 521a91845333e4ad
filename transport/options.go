package transport

import (
	"context"
	"net"
	"time"
)

// Options configure a Node. ID and Transport are required; zero elsewhere is the default.
type Options struct {
	// ID is this node's id, above 0.
	ID int32
	// ClusterID must be the same on all nodes of a cluster. Zero: the node belongs to none yet, and until SetCluster only raw streams
	// work. All else is refused, by it (RefusedCluster) and to its callers (ErrNoCluster).
	ClusterID ClusterID
	// Incarnation tells lives of the same id apart: a higher one displaces a lower one, which is from then on refused as duplicate.
	// Default: the time of NewNode in nanoseconds; where clocks may step back between two starts use a counter that is kept on disk,
	// or the peers take the new life for the older one.
	Incarnation uint64
	// Transport carries the bytes.
	Transport Transport
	// ListenAddress is where others reach this node. Empty: it only dials.
	ListenAddress string

	// Resolve finds the address of a node for which SetAddress was not called. It is called before each dial, must not block, and
	// returns false if it knows none.
	Resolve func(id int32) (addr string, ok bool)
	// Admit lets a node in or says why not: the error's text is shown to it. It is called for each inbound connection, after the
	// cluster was checked, and must not block. Nil admits every node of the cluster. Raw streams, which know no cluster, are not its
	// concern.
	Admit func(Peer) error
	// CheckIdentity says whether an authenticated connection may speak for a node id, for example NameCheck. Called on both sides;
	// must not block; for raw streams, too. Without it every authenticated connection is refused; on a transport that does not authenticate it is not
	// called.
	CheckIdentity func(id int32, who Identity) error

	// OnBatch takes a batch of Raft messages. Called in order per peer, urgent ones apart from the others, on the connection's goroutine; payload is valid
	// until it returns. Nil: batches are refused.
	OnBatch func(from Peer, payload []byte)
	// OnRequest answers a request, on a goroutine of its own. ctx ends with the caller's deadline or cancel, the connection and the
	// Node. The payload may be kept. An error travels as text, but those that wrap ErrBusy, ErrTooLarge or ErrTimeout (or a
	// context's deadline) keep their meaning. Nil: requests are refused.
	OnRequest func(ctx context.Context, from Peer, payload []byte) ([]byte, error)
	// OnPull opens what a peer wants to pull, within PullStallTimeout. The Node closes the Source. Errors as for OnRequest. Nil:
	// pulls are refused.
	OnPull func(ctx context.Context, from Peer, request PullRequest) (Source, error)
	// OnStream has a raw stream (OpenStream) that a node made, on a goroutine of its own. The connection is closed when it returns and
	// when the Node closes, which waits for it. The peer may be of another cluster or have this node's id; nothing of it was checked but
	// its certificate, if the transport has those. Nil: streams are refused.
	OnStream func(from Peer, conn net.Conn)
	// OnPeerState hears of changes, one after the other, from one goroutine. If it is slow the oldest are left out.
	OnPeerState func(PeerState)
	// OnEvent hears of what an operator may want to know, from the same goroutine. If it is slow events are left out.
	OnEvent func(Event)

	// DialTimeout bounds making a connection, before the handshake. Default 3 s.
	DialTimeout time.Duration
	// HandshakeTimeout bounds authentication and handshake. Default 3 s.
	HandshakeTimeout time.Duration
	// PingInterval is the silence after which a ping is sent. Default 1 s, at most half of DeadPeerTimeout.
	PingInterval time.Duration
	// DeadPeerTimeout is the silence after which a connection is closed. Default 5 s. Must be above the peers' PingInterval.
	DeadPeerTimeout time.Duration
	// BackoffMin and BackoffMax bound the wait before a failed dial is repeated; it doubles, and is shortened by up to a half at
	// random. Defaults 20 ms and 1 s. A peer that is dying, which resets what stands and what dials it, is dialled again a few times
	// within BackoffMin.
	BackoffMin, BackoffMax time.Duration
	// CloseTimeout bounds Close, which waits for callbacks. Default 5 s.
	CloseTimeout time.Duration

	// BatchBytesMax bounds one batch. Default 64 MiB, at most 1 GiB like all frames.
	BatchBytesMax int
	// RequestBytesMax and ResponseBytesMax bound one request and one response. Default 16 MiB.
	RequestBytesMax, ResponseBytesMax int
	// PullRequestBytesMax bounds what a pull asks with. Default 64 KiB.
	PullRequestBytesMax int
	// SendQueueBytes bounds what waits to be sent on one connection, headers included; as much again may be on its way to the
	// network. A single frame that is larger is taken when nothing else waits. Default 8 MiB.
	SendQueueBytes int
	// ConnBytesMax bounds batches and requests that are being read or handled, of one inbound connection. Default 64 MiB, at least
	// the largest frame. Answers to calls come besides: one per peer is being read at a time.
	ConnBytesMax int64
	// InboundBytesMax bounds the same over all connections. Default 256 MiB, at least ConnBytesMax.
	InboundBytesMax int64
	// RequestsMax bounds requests of one connection that are being handled, and calls to one peer that wait for an answer; more
	// fail with ErrBusy and ErrQueueFull. Default 1024.
	RequestsMax int
	// PullsMax bounds pulls that are served at a time. More are refused with ErrBusy. Default 16.
	PullsMax int
	// PullBytesPerSecond bounds what all served pulls send together. 0: no bound; at least 64 KiB otherwise. SetPullRate changes it.
	PullBytesPerSecond int64
	// PullStallTimeout ends a pull that makes no progress: no byte came, or a mebibyte could not be sent. Default 30 s.
	PullStallTimeout time.Duration
	// StreamsMax bounds raw streams that are served at a time. More are refused with ErrBusy. Default 256.
	StreamsMax int
	// ConnsMax bounds inbound connections, of all kinds. Default 1024.
	ConnsMax int
	// HandshakesMax bounds inbound connections that have not passed the handshake. Default 64.
	HandshakesMax int
	// PeersMax bounds node ids that are remembered. Default 1024.
	PeersMax int
}

func orDuration(d *time.Duration, def time.Duration) {
	if *d == 0 {
		*d = def
	}
}

func orInt(n *int, def int) {
	if *n == 0 {
		*n = def
	}
}

// EnsureDefaults fills in defaults where a field is zero.
func (o *Options) EnsureDefaults() {
	if o.Incarnation == 0 {
		o.Incarnation = uint64(time.Now().UnixNano())
	}
	orDuration(&o.DialTimeout, 3*time.Second)
	orDuration(&o.HandshakeTimeout, 3*time.Second)
	orDuration(&o.DeadPeerTimeout, 5*time.Second)
	orDuration(&o.PingInterval, min(time.Second, o.DeadPeerTimeout/2))
	orDuration(&o.BackoffMin, 20*time.Millisecond)
	orDuration(&o.BackoffMax, max(time.Second, o.BackoffMin))
	orDuration(&o.CloseTimeout, 5*time.Second)
	orDuration(&o.PullStallTimeout, 30*time.Second)
	orInt(&o.BatchBytesMax, 64<<20)
	orInt(&o.RequestBytesMax, 16<<20)
	orInt(&o.ResponseBytesMax, 16<<20)
	orInt(&o.PullRequestBytesMax, 64<<10)
	orInt(&o.SendQueueBytes, 8<<20)
	orInt(&o.RequestsMax, 1024)
	orInt(&o.PullsMax, 16)
	orInt(&o.StreamsMax, 256)
	orInt(&o.ConnsMax, 1024)
	orInt(&o.HandshakesMax, 64)
	orInt(&o.PeersMax, 1024)
	if o.ConnBytesMax == 0 {
		o.ConnBytesMax = max(64<<20, int64(o.largestFrame()))
	}
	if o.InboundBytesMax == 0 {
		o.InboundBytesMax = max(256<<20, o.ConnBytesMax)
	}
}

func (o *Options) largestFrame() int {
	return max(o.BatchBytesMax, o.RequestBytesMax, o.ResponseBytesMax, o.PullRequestBytesMax)
}

// frameBytesMax is the bound on all bounds of frames.
const frameBytesMax = 1 << 30

// pullRateMin keeps a throttled pull's pauses short, in bytes/s.
const pullRateMin = 64 << 10

// Validate says whether the options can be used. Errors wrap ErrInvalidOptions.
func (o *Options) Validate() error {
	switch {
	case o.ID < 1:
		return invalid("ID", "is %d, must be above 0", o.ID)
	case o.Transport == nil:
		return invalid("Transport", "is missing")
	case o.PingInterval > o.DeadPeerTimeout/2:
		return invalid("PingInterval", "is %v, at most half of DeadPeerTimeout (%v) is allowed", o.PingInterval, o.DeadPeerTimeout)
	case o.BackoffMax < o.BackoffMin:
		return invalid("BackoffMax", "is %v, below BackoffMin (%v)", o.BackoffMax, o.BackoffMin)
	case o.largestFrame() > frameBytesMax:
		return invalid("BatchBytesMax, RequestBytesMax, ResponseBytesMax or PullRequestBytesMax", "is above %d", frameBytesMax)
	case o.ConnBytesMax < int64(o.largestFrame()):
		return invalid("ConnBytesMax", "is %d, below the largest frame (%d)", o.ConnBytesMax, o.largestFrame())
	case o.InboundBytesMax < o.ConnBytesMax:
		return invalid("InboundBytesMax", "is %d, below ConnBytesMax (%d)", o.InboundBytesMax, o.ConnBytesMax)
	case o.PullBytesPerSecond != 0 && o.PullBytesPerSecond < pullRateMin:
		return invalid("PullBytesPerSecond", "is %d, must be 0 or at least %d", o.PullBytesPerSecond, pullRateMin)
	}
	return o.validatePositive()
}

func (o *Options) validatePositive() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"DialTimeout", o.DialTimeout}, {"HandshakeTimeout", o.HandshakeTimeout}, {"PingInterval", o.PingInterval},
		{"BackoffMin", o.BackoffMin}, {"CloseTimeout", o.CloseTimeout}, {"PullStallTimeout", o.PullStallTimeout},
	} {
		if d.value <= 0 {
			return invalid(d.name, "is %v, must be above 0", d.value)
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"BatchBytesMax", o.BatchBytesMax}, {"RequestBytesMax", o.RequestBytesMax}, {"ResponseBytesMax", o.ResponseBytesMax},
		{"PullRequestBytesMax", o.PullRequestBytesMax}, {"SendQueueBytes", o.SendQueueBytes}, {"RequestsMax", o.RequestsMax},
		{"PullsMax", o.PullsMax}, {"StreamsMax", o.StreamsMax}, {"ConnsMax", o.ConnsMax}, {"HandshakesMax", o.HandshakesMax},
		{"PeersMax", o.PeersMax},
	} {
		if n.value < 1 {
			return invalid(n.name, "is %d, must be above 0", n.value)
		}
	}
	return nil
}

// NameCheck makes an Options.CheckIdentity of a rule: the certificate must carry the name that name gives for the node id.
func NameCheck(name func(id int32) string) func(int32, Identity) error {
	return func(id int32, who Identity) error {
		want := name(id)
		if want == "" || !who.Has(want) {
			return invalidIdentity(id, want, who)
		}
		return nil
	}
}
