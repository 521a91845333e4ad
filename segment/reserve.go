package segment

// Space is reserved ahead of the writer, in steps that grow with the segment: a file system that need not look for blocks at each write takes
// twice the bytes per second. What was reserved and not used is given back when the segment is sealed, when the log rests and
// when it is closed; a crash leaves it reserved until one of these comes.
const (
	reserveFrom = 1 << 20  // smaller segments reserve nothing: thousands of quiet logs must not hold space
	reserveMax  = 32 << 20 // at once
)

// reserve makes sure that there is space up to end. It is a hint: the write itself tells when there is none.
func (w *writer) reserve(end, limit int64) {
	if end <= w.reserved || end < reserveFrom || w.noReserve {
		return
	}
	from := max(w.reserved, w.segment.size.Load())
	to := min(max(end, from+min(end, reserveMax)), max(limit, end))
	if err := w.file.Preallocate(from, to-from); err != nil {
		w.noReserve = true
		return
	}
	w.reserved = to
}

// unreserve gives back what was reserved behind the end.
func (w *writer) unreserve() error {
	if w.reserved <= w.end.pos {
		return nil
	}
	w.reserved = 0
	return w.file.Truncate(w.end.pos)
}

// Rest gives back space that was reserved for entries that did not come. It is for logs that were appended to and now are not.
func (l *Log) Rest() error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if err := l.check(); err != nil {
		return err
	}
	if err := l.writer.unreserve(); err != nil {
		return l.fail(err)
	}
	return nil
}
