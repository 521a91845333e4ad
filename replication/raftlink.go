package replication

import (
	"context"
	"sync"

	"github.com/billetlog/billet/transport"
)

// raftLinks are the connections for Raft messages, one for each node: a peer takes one, and a second ends the first with what is on its
// way. dragonboat wants several, by shard, so they share it.
type raftLinks struct {
	mu    sync.Mutex
	links map[int32]*raftLink
}

// raftLink is the connection to one node.
type raftLink struct {
	mu      sync.Mutex // also held while it is dialled: whoever comes then waits for the same
	batches *transport.Batches
	users   int
}

func (l *raftLinks) of(node int32) *raftLink {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.links == nil {
		l.links = make(map[int32]*raftLink)
	}
	if l.links[node] == nil {
		l.links[node] = &raftLink{}
	}
	return l.links[node]
}

// open returns the connection that stands, or makes one. ctx is dragonboat's own and ends with it.
func (l *raftLink) open(ctx context.Context, n *transport.Node, node int32) (*transport.Batches, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.batches != nil && l.batches.Err() == nil {
		l.users++
		return l.batches, nil
	}
	// A full queue makes dragonboat's own, bounded one fill up; an error would make it stay away for a second.
	b, err := n.OpenBatches(ctx, node, transport.FullWaits)
	if err != nil {
		return nil, err
	}
	l.batches, l.users = b, 1
	return b, nil
}

// close ends the connection when its last user is gone.
func (l *raftLink) close(b *transport.Batches) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.batches != b {
		return // it ended, and another one took its place
	}
	if l.users--; l.users == 0 {
		_ = b.Close()
		l.batches = nil
	}
}
