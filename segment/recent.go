package segment

// maxRecent bounds how many frames are remembered: 40 bytes for each.
const maxRecent = 1 << 14

// recent remembers the latest frames, consecutive by index, so that the way from
// append to apply reads nothing back.
type recent struct {
	first  uint64 // index of frames[start]
	start  int
	frames []recentFrame
}

type recentFrame struct {
	base, next int64
	segment    int64 // base offset of the segment
	pos        uint32
	size       uint32
	term       uint32
	kind       Kind
}

func (r *recent) len() int { return len(r.frames) - r.start }

// add appends frames; the first of them has the given index.
func (r *recent) add(index uint64, frames []recentFrame) {
	if len(frames) == 0 {
		return
	}
	if n := r.len(); n == 0 || r.first+uint64(n) != index {
		r.clear()
		r.first = index
	}
	if over := r.len() + len(frames) - maxRecent; over > 0 {
		r.forget(r.first + uint64(min(over, r.len())) - 1)
	}
	if over := len(frames) - maxRecent; over > 0 {
		r.first = index + uint64(over)
		frames = frames[over:]
	}
	if r.start > 0 && len(r.frames)+len(frames) > cap(r.frames) {
		r.frames = r.frames[:copy(r.frames, r.frames[r.start:])]
		r.start = 0
	}
	r.frames = append(r.frames, frames...)
}

// get returns frame index.
func (r *recent) get(index uint64) (*recentFrame, bool) {
	i := index - r.first // wraps around below first
	if i >= uint64(r.len()) {
		return nil, false
	}
	return &r.frames[r.start+int(i)], true
}

// forget drops the frames up to index.
func (r *recent) forget(index uint64) {
	if r.len() == 0 || index < r.first {
		return
	}
	n := min(index-r.first+1, uint64(r.len()))
	r.first += n
	r.start += int(n)
	if r.start == len(r.frames) {
		r.clear()
	}
}

// truncate drops the frames from index on.
func (r *recent) truncate(index uint64) {
	if r.len() == 0 || index >= r.first+uint64(r.len()) {
		return
	}
	if index <= r.first {
		r.clear()
		return
	}
	r.frames = r.frames[:r.start+int(index-r.first)]
}

// clear drops all frames, and the room for them when it is large.
func (r *recent) clear() {
	const keep = 32
	r.start = 0
	if cap(r.frames) > keep {
		r.frames = nil
		return
	}
	r.frames = r.frames[:0]
}
