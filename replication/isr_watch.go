package replication

import "sync"

// leadershipWatchers are told whenever this node gains or loses the leadership of a partition, and when the in-sync replicas of one that it leads
// change. They run on the goroutine that found it and must not block; what holds now they ask of the partition.
type leadershipWatchers struct {
	mu   sync.Mutex
	list []func(*Partition)
}

func (w *leadershipWatchers) add(f func(*Partition)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, f)
}

func (w *leadershipWatchers) tell(p *Partition) {
	w.mu.Lock()
	list := w.list
	w.mu.Unlock()
	for _, f := range list {
		f(p)
	}
}
