package transport

import "fmt"

// known is what a Node remembers of another.
type known struct {
	incarnation uint64
	// inbound has the one connection of each kind that the node may have here.
	inbound map[Kind]*stream
	// outbound has what was dialled to it.
	outbound map[*stream]struct{}
	// delivering has a token while batches of it are delivered, so that two connections of a kind never deliver at a time.
	delivering map[Kind]chan struct{}
}

// meet records a node's incarnation. It refuses one that is older than what was seen, and ends the connections of an older one.
func (n *Node) meet(id int32, incarnation uint64) *RefusedError {
	n.mu.Lock()
	k, err := n.knownLocked(id)
	if err != nil {
		n.mu.Unlock()
		return err
	}
	if incarnation < k.incarnation {
		newer := k.incarnation
		n.mu.Unlock()
		return &RefusedError{Node: id, Code: RefusedDuplicate,
			Reason: fmt.Sprintf("node %d is in use by a newer incarnation (%d, this is %d)", id, newer, incarnation)}
	}
	var old []*stream
	before := k.incarnation
	if incarnation > k.incarnation {
		k.incarnation = incarnation
		for _, s := range k.inbound {
			old = append(old, s)
		}
		for s := range k.outbound {
			old = append(old, s)
		}
	}
	n.mu.Unlock()
	for _, s := range old {
		if s.peer.Incarnation < incarnation {
			s.close(fmt.Errorf("%w: %w: a newer incarnation of node %d came", ErrConnLost, ErrDuplicateNode, id))
		}
	}
	if before != 0 && incarnation > before {
		n.event(EventDisplaced, Peer{ID: id, Incarnation: incarnation}, fmt.Errorf("incarnation %d follows %d", incarnation, before))
	}
	return nil
}

func (n *Node) knownLocked(id int32) (*known, *RefusedError) {
	if k := n.mu.known[id]; k != nil {
		return k, nil
	}
	if len(n.mu.known) >= n.opts.PeersMax {
		return nil, &RefusedError{Node: id, Code: RefusedBusy, Reason: fmt.Sprintf("%d nodes are known already", len(n.mu.known))}
	}
	k := &known{inbound: map[Kind]*stream{}, outbound: map[*stream]struct{}{}, delivering: map[Kind]chan struct{}{
		KindBatches: make(chan struct{}, 1), KindUrgent: make(chan struct{}, 1),
	}}
	n.mu.known[id] = k
	return k, nil
}

// enter records a stream whose peer was met, and returns what is known of that. An inbound stream takes the place of the last of its
// kind, which is ended. One of an incarnation that was displaced meanwhile is ended itself.
func (n *Node) enter(s *stream) *known {
	n.mu.Lock()
	k := n.mu.known[s.peer.ID]
	var before *stream
	stale := s.peer.Incarnation < k.incarnation
	switch {
	case stale:
	case s.dialled != "":
		k.outbound[s] = struct{}{}
	case s.kind != KindPull:
		before = k.inbound[s.kind]
		k.inbound[s.kind] = s
	}
	n.mu.Unlock()
	if stale {
		s.close(fmt.Errorf("%w: %w: a newer incarnation of node %d came", ErrConnLost, ErrDuplicateNode, s.peer.ID))
	}
	if before != nil {
		before.close(fmt.Errorf("%w: the peer made another connection", ErrConnLost))
	}
	return k
}

// leave takes back enter.
func (n *Node) leave(s *stream) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.mu.known[s.peer.ID]
	if k == nil {
		return
	}
	delete(k.outbound, s)
	if k.inbound[s.kind] == s {
		delete(k.inbound, s.kind)
	}
}

// outbound lists what was dialled to a node.
func (n *Node) outbound(id int32) []*stream {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.mu.known[id]
	if k == nil {
		return nil
	}
	list := make([]*stream, 0, len(k.outbound))
	for s := range k.outbound {
		list = append(list, s)
	}
	return list
}
