package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/billetlog/billet/transport"
)

// A replica that is new, or so far behind that its leader does not have the entries any more, gets the leader's log as bytes of segment files.
//
//   - Raft wants to send a snapshot. Its pieces are tiny, since the state machine writes nothing; the leader's node holds them back (snapshotConn),
//     pins the log's frames through the snapshot's index and makes one request, the offer, that lasts until the other side is done.
//   - The other node pulls the frames that it lacks into the folder of the next generation, makes them durable, and only then hands the pieces to its
//     own Raft, which asks the store to install them: one write of the slot.
//
// Until then Raft there has acknowledged nothing, so neither quorum nor in-sync replicas ever count bytes that are not on disk.

// requestOffer is the offer's kind. Frozen: it is on the wire.
const requestOffer requestKind = 1

// Bounds of catching up.
const (
	outgoingPullsMax = 8                // offers of this node that stand at a time; more wait
	incomingPullsMax = 8                // imports into this node at a time; more wait
	offerIdleMax     = 10 * time.Minute // an offer ends when nothing is pulled for so long
	pullPatience     = time.Minute      // an import ends when no byte comes for so long
	pullBackoffMin   = 20 * time.Millisecond
	pullBackoffMax   = 2 * time.Second
	installWait      = 10 * time.Second // for what an earlier offer handed to Raft
	stagingKept      = 10 * time.Minute // an import that was not finished is deleted when nobody went on with it for so long
	capturesMax      = 4                // states of a partition that wait for their snapshot's last piece
)

var (
	errOfferGone      = errors.New("replication: the offer does not stand any more")
	errOfferDisplaced = errors.New("replication: a newer offer came")
	errOfferStale     = errors.New("replication: the snapshot is out of date")
	errOfferIdle      = errors.New("replication: nothing was pulled for too long")
	errNotTheLeader   = errors.New("replication: who offers is not the leader known here")
	errNotHanded      = errors.New("replication: raft did not take the snapshot")
)

// catchUps is a host's part in bringing replicas up to date.
type catchUps struct {
	out, in chan struct{} // places
	mu      struct {
		sync.Mutex
		last   uint64 // id of the newest offer
		offers map[uint64]*outgoing
	}
}

func newCatchUps() *catchUps {
	c := &catchUps{out: make(chan struct{}, outgoingPullsMax), in: make(chan struct{}, incomingPullsMax)}
	c.mu.offers = make(map[uint64]*outgoing)
	return c
}

// serveCatchUps lets other nodes pull from this one and offer to it.
func (h *Host) serveCatchUps() {
	if h.cfg.peers == nil {
		return
	}
	f := pullHandler(h.openPull)
	h.pulls.Store(&f)
	h.serve(requestOffer, h.takeOffer)
	h.leadership.add(h.catchUps.deposed)
	if h.cfg.CatchUpBytesPerSecond > 0 {
		h.cfg.peers.node.SetPullRate(h.cfg.CatchUpBytesPerSecond)
	}
}

// takePlace waits for one of a bounded number of places.
func takePlace(ctx context.Context, places chan struct{}) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// endWith is ctx, ended by the partition's end as well, or by the cancel function.
func (p *Partition) endWith(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.ctx, func() { cancel(fmt.Errorf("%w: %s", ErrClosed, p.name())) })
	return ctx, func(cause error) { stop(); cancel(cause) }
}

// CatchUp tells how far a replica's catching up is.
type CatchUp struct {
	From   int32     // node
	Index  uint64    // Raft index that it will have
	Bytes  int64     // there
	Total  int64     // wanted
	Pulled int64     // came from the other node; the rest was there already
	Since  time.Time // when it began
}

// CatchUp returns what is being pulled; ok is false when nothing is.
func (p *Partition) CatchUp() (c CatchUp, ok bool) {
	in := &p.intake
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mu.importer == nil {
		return CatchUp{}, false
	}
	c = in.mu.now
	c.Bytes, c.Total = in.mu.importer.Progress()
	c.Pulled = in.pulled.Load()
	return c, true
}

// retryable says whether the far node may answer otherwise when it is asked again.
func retryable(err error) bool {
	var remote *transport.RemoteError
	return !errors.As(err, &remote) && !errors.Is(err, transport.ErrTooLarge)
}
