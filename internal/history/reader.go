package history

// Reader is one reader's view of the partitions. It is for one goroutine.
type Reader struct {
	history *History
	name    string
	next    map[Partition]int64
	high    map[Partition]int64
}

// Reader returns a reader that has read nothing.
func (h *History) Reader(name string) *Reader {
	return &Reader{history: h, name: name, next: map[Partition]int64{}, high: map[Partition]int64{}}
}

// Read notes that the reader got a record. Offsets must follow one another, the
// first one being that of Seek, which is 0 if it was never called.
func (r *Reader) Read(p Partition, offset int64, v Value) {
	h := r.history
	h.mu.Lock()
	defer h.mu.Unlock()
	if due := r.next[p]; offset != due {
		h.violateLocked("%v: reader %s got offset %d where %d was due", p, r.name, offset, due)
	}
	r.next[p] = offset + 1
	r.high[p] = max(r.high[p], offset+1)
	h.learnLocked(p, offset, v, "read by "+r.name)
}

// Position is the offset of the record that the reader gets next.
func (r *Reader) Position(p Partition) int64 { return r.next[p] }

// Seek sets the reader's position, which is that of a user's choice.
func (r *Reader) Seek(p Partition, offset int64) { r.next[p] = offset }

// High notes the high watermark that the reader was told. It never shrinks, and
// never falls behind what the reader has read.
func (r *Reader) High(p Partition, offset int64) {
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	if before := r.high[p]; offset < before {
		r.history.violateLocked("%v: reader %s saw the high watermark fall from %d to %d", p, r.name, before, offset)
	}
	r.high[p] = max(r.high[p], offset)
}
