package billet

import "sync"

// dispatcher is the goroutine of a Producer that runs callbacks.
type dispatcher struct {
	producer *Producer
	wake     chan struct{}
	stop     chan struct{}
	done     chan struct{}

	mu struct {
		sync.Mutex
		batches []*pendingBatch // in order
		busy    bool            // some taken ones have callbacks left
		ended   bool            // the goroutine is gone, and so are callbacks
	}
}

func (d *dispatcher) init(p *Producer) {
	d.producer = p
	d.wake = make(chan struct{}, 1)
	d.stop = make(chan struct{})
	d.done = make(chan struct{})
}

// push takes over a batch that has its result. One without callbacks is done
// with here, unless a Flush waits for callbacks before it.
func (d *dispatcher) push(b *pendingBatch) {
	if len(b.callbacks) == 0 && (len(b.flushes) == 0 || d.idle()) {
		d.recycle(b)
		return
	}
	d.mu.Lock()
	if d.mu.ended {
		d.mu.Unlock()
		d.recycle(b)
		return
	}
	d.producer.undelivered.Add(1)
	first := len(d.mu.batches) == 0
	d.mu.batches = append(d.mu.batches, b)
	d.mu.Unlock()
	if first {
		signal(d.wake)
	}
}

// pushFlush lets f arrive when all callbacks before it have returned.
func (d *dispatcher) pushFlush(p *producerPartition, f *flushWait) {
	b := d.producer.pool.Get().(*pendingBatch)
	b.partition = p
	b.flushes = append(b.flushes, f)
	d.push(b)
}

func (d *dispatcher) idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.mu.busy && len(d.mu.batches) == 0
}

func (d *dispatcher) run() {
	defer close(d.done)
	var batches []*pendingBatch
	for {
		batches = d.take(batches)
		for i, b := range batches {
			batches[i] = nil
			d.deliver(b)
		}
		if len(batches) > 0 {
			continue
		}
		select {
		case <-d.wake:
		case <-d.stop:
			if d.end() {
				return
			}
		}
	}
}

// end notes that the goroutine ends, if nothing is left for it.
func (d *dispatcher) end() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.ended = len(d.mu.batches) == 0
	return d.mu.ended
}

// take exchanges the empty list for the full one.
func (d *dispatcher) take(empty []*pendingBatch) []*pendingBatch {
	d.mu.Lock()
	defer d.mu.Unlock()
	batches := d.mu.batches
	d.mu.batches = empty[:0]
	d.mu.busy = len(batches) > 0
	return batches
}

// deliver runs the callbacks of one batch.
func (d *dispatcher) deliver(b *pendingBatch) {
	for i := range b.callbacks {
		c := &b.callbacks[i]
		if b.err != nil {
			c.call(Offset{}, b.err)
		} else {
			c.call(b.offsetOf(c.delta), nil)
		}
	}
	d.producer.undelivered.Add(-1)
	d.recycle(b)
}

// recycle ends a batch's life.
func (d *dispatcher) recycle(b *pendingBatch) {
	for _, f := range b.flushes {
		f.arrive()
	}
	d.producer.budget.release(b.charged)
	b.charged = 0
	b.free(&d.producer.budget)
	b.reset()
	d.producer.pool.Put(b)
}

// close runs what is left and waits for it.
func (d *dispatcher) close() {
	close(d.stop)
	<-d.done
}
