package replication

import (
	"context"
	"math/rand/v2"
	"sync"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// memNet carries Raft messages between the hosts of a test. Nodes can be cut off and messages lost, by a seeded chance.
type memNet struct {
	mu    sync.Mutex
	nodes map[string]*memNode
	cut   map[string]bool
	loss  float64
	rng   *rand.Rand
}

type memNode struct {
	inbox chan memMessages
	stop  chan struct{}
	done  chan struct{}
}

type memMessages struct {
	from  string
	batch pb.MessageBatch
}

func newMemNet(seed uint64) *memNet {
	return &memNet{nodes: map[string]*memNode{}, cut: map[string]bool{}, rng: rand.New(rand.NewPCG(seed, 1))}
}

func (n *memNet) attach(name string, deliver func(string, pb.MessageBatch)) func() {
	node := &memNode{inbox: make(chan memMessages, 1024), stop: make(chan struct{}), done: make(chan struct{})}
	n.mu.Lock()
	n.nodes[name] = node
	n.mu.Unlock()
	go func() {
		defer close(node.done)
		for {
			select {
			case b := <-node.inbox:
				deliver(b.from, b.batch)
			case <-node.stop:
				return
			}
		}
	}()
	return func() {
		n.mu.Lock()
		if n.nodes[name] == node {
			delete(n.nodes, name)
		}
		n.mu.Unlock()
		close(node.stop)
		<-node.done
	}
}

func (n *memNet) isolate(name string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[name] = cut
}

func (n *memNet) peer(from, to string) *memNode {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut[from] || n.cut[to] {
		return nil
	}
	if n.loss > 0 && n.rng.Float64() < n.loss {
		return nil
	}
	return n.nodes[to]
}

func (n *memNet) reachable(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.cut[from] && !n.cut[to] && n.nodes[to] != nil
}

func (n *memNet) send(ctx context.Context, from, to string, b pb.MessageBatch) error {
	if !n.reachable(from, to) {
		return errUnreachable
	}
	p := n.peer(from, to)
	if p == nil {
		return nil // lost on the way
	}
	data, err := b.Marshal()
	if err != nil {
		return err
	}
	var c pb.MessageBatch
	if err := c.Unmarshal(data); err != nil {
		return err
	}
	select {
	case p.inbox <- memMessages{from, c}:
	case <-p.stop:
		return errUnreachable
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
