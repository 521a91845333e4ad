package replication

import (
	"io"
	"sync"

	sm "github.com/lni/dragonboat/v4/statemachine"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/segment"
)

// machine is a partition's state machine as dragonboat sees it. The log is stored already when a batch arrives here; what is left is to
// fold it, to move the high watermark, and to tell those who wait. It writes nothing, reads no clock and returns no error:
// dragonboat ends the process on one.
type machine struct {
	p      *Partition
	closed chan struct{}
	once   sync.Once
	ready  []completion // scratch space of Update, which is never called twice at once
}

// completion is a waiter together with its answer.
type completion struct {
	done func(AppendResult)
	res  AppendResult
}

// Open says up to where the fold reaches; dragonboat replays from there.
func (m *machine) Open(<-chan struct{}) (uint64, error) {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	return m.p.mu.applied, nil
}

// Update takes committed entries, in order.
func (m *machine) Update(entries []sm.Entry) ([]sm.Entry, error) {
	p := m.p
	p.reloadInstalled()
	log := p.r.currentLog()
	m.ready = m.ready[:0]
	p.mu.Lock()
	for i := range entries {
		e := &entries[i]
		if p.r.latched.Load() {
			continue // what a latched replica applies may be in memory only: nobody is told
		}
		if e.Index <= p.mu.applied {
			continue // a snapshot that was installed meanwhile covers it
		}
		effective, err := p.r.effective(log, e)
		if p.r.reloadDue.Load() {
			break // a snapshot covers this one and the rest
		}
		if err != nil {
			p.r.latchFor(log, err)
			continue
		}
		if effective {
			m.ready = p.applyLocked(batch.Batch(e.Cmd), e.Index, m.ready)
		}
		p.mu.applied = e.Index
	}
	applied := p.mu.applied
	for i := range entries {
		entries[i].Result = sm.Result{Value: 1}
	}
	p.signalLocked()
	p.mu.Unlock()
	p.releaseHeld()
	log.Forget(applied)
	for i := range m.ready {
		m.ready[i].done(m.ready[i].res)
		m.ready[i] = completion{}
	}
	return entries, nil
}

// effective says whether the batch of an entry took effect when it was stored.
func (r *replica) effective(log *segment.Log, e *sm.Entry) (bool, error) {
	if e.Index <= r.opened.Load() {
		// It was read back from the log, which gives a void marker for what took no effect.
		return len(e.Cmd) > len(voidMarker), nil
	}
	f, err := log.Frame(e.Index)
	return f.Kind == segment.KindData, err
}

// Lookup is dragonboat's way to read; ours go to the log.
func (m *machine) Lookup(any) (any, error) { return nil, nil }

// Sync makes the fold durable. dragonboat notes a snapshot's index before it calls it and stores the record after.
func (m *machine) Sync() error {
	m.p.reloadInstalled()
	m.p.checkpoint(true)
	return nil
}

// PrepareSnapshot is called when a snapshot is made for another node, while nothing is applied.
func (m *machine) PrepareSnapshot() (any, error) {
	m.p.reloadInstalled()
	m.p.capture()
	return nil, nil
}

// SaveSnapshot writes next to nothing: a snapshot's bytes are segments and never travel through dragonboat.
func (m *machine) SaveSnapshot(_ any, w io.Writer, _ <-chan struct{}) error {
	if _, err := io.WriteString(w, snapshotPayload); err != nil {
		return sm.ErrSnapshotStreaming
	}
	return nil
}

// RecoverFromSnapshot loads the fold of the log that the store has installed by now.
func (m *machine) RecoverFromSnapshot(io.Reader, <-chan struct{}) error {
	m.p.reloadInstalled()
	return nil
}

// Close is called when the group is unloaded for good.
func (m *machine) Close() error {
	m.once.Do(func() { close(m.closed) })
	return nil
}
