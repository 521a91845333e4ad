package segment

import (
	"fmt"
	"io"

	"github.com/billetlog/billet/internal/vfs"
)

// journalPlace is a block found in the file.
type journalPlace struct {
	journalBlock
	pos int64 // in the file
}

// end is the position behind the block.
func (p *journalPlace) end() int64 { return p.pos + int64(sectorsFor(p.length)) }

// journalScan finds the blocks of a journal.
type journalScan struct {
	file   vfs.File
	path   string
	header *journalHeader

	window   []byte // of the file, read ahead
	windowAt int64
	payload  []byte // of the block read last
}

func (s *journalScan) damaged(pos int64, format string, args ...any) error {
	return &CorruptionError{File: s.path, Pos: pos, Offset: -1, Reason: fmt.Sprintf(format, args...)}
}

func (s *journalScan) halfEnd(half int) int64 {
	return journalHalvesStart + int64(half+1)*s.header.half
}

// bytes returns n bytes at pos, valid until the next call.
func (s *journalScan) bytes(pos int64, n int) ([]byte, error) {
	if from := pos - s.windowAt; from >= 0 && from+int64(n) <= int64(len(s.window)) {
		return s.window[from:][:n], nil
	}
	size := int64(max(n, 1<<20))
	size = min(size, s.halfEnd(1)-pos)
	if int64(cap(s.window)) < size {
		s.window = make([]byte, size)
	}
	s.window, s.windowAt = s.window[:size], pos
	if got, err := s.file.ReadAt(s.window, pos); err != nil && !(err == io.EOF && int64(got) == size) {
		s.window = s.window[:0]
		return nil, err
	}
	return s.window[:n], nil
}

// head reads the sector at pos. ok says that a block of this generation may begin there; its hash is not checked.
func (s *journalScan) head(pos, end int64) (h journalBlock, ok bool, err error) {
	b, err := s.bytes(pos, sectorSize)
	if err != nil {
		return h, false, err
	}
	h, ok = peekJournalBlock(b, end-pos)
	return h, ok && h.generation == s.header.generation && h.nonce == s.header.nonce, nil
}

// block reads the block with that head. ok is false when it is not whole; rotten then is the position of a sector that cannot come from
// a write cut short, or -1.
func (s *journalScan) block(h *journalBlock, pos int64) (ok bool, rotten int64, err error) {
	b, err := s.bytes(pos, sectorsFor(h.length))
	if err != nil {
		return false, -1, err
	}
	if at := rottenSector(b); at >= 0 {
		return false, pos + int64(at), nil
	}
	s.payload = gatherSectors(s.payload[:0], b)
	return validJournalBlock(s.payload, h), -1, nil
}

// run reads blocks from the start of a half as long as their sequence runs on. It returns where it ended.
func (s *journalScan) run(half int) (blocks []journalPlace, end int64, err error) {
	pos := s.halfEnd(half) - s.header.half
	for pos < s.halfEnd(half) {
		h, ok, err := s.head(pos, s.halfEnd(half))
		if err != nil {
			return nil, 0, err
		}
		if !ok || len(blocks) > 0 && h.seq != blocks[len(blocks)-1].seq+1 {
			break
		}
		ok, _, err = s.block(&h, pos)
		if err != nil {
			return nil, 0, err
		}
		if !ok {
			break
		}
		blocks = append(blocks, journalPlace{h, pos})
		pos = blocks[len(blocks)-1].end()
	}
	return blocks, pos, nil
}

// blocks returns the blocks whose records count, in order of their sequence.
//
// Each half is read from its start. The half whose blocks are later is the active one, and the last block of that says from which
// sequence on all are needed: these must be there, in the other half the last ones. What comes behind the last block must look like a
// write that was cut short, or like none.
func (s *journalScan) blocks() ([]journalPlace, error) {
	var runs [2][]journalPlace
	var ends [2]int64
	for half := range 2 {
		var err error
		if runs[half], ends[half], err = s.run(half); err != nil {
			return nil, err
		}
	}
	active := 0
	if n, m := len(runs[0]), len(runs[1]); n == 0 || m > 0 && runs[1][m-1].seq > runs[0][n-1].seq {
		active = 1
	}
	live := runs[active]
	if len(live) == 0 {
		return nil, s.tail(0, journalHalvesStart, ends)
	}
	last := live[len(live)-1]
	first := live[0].seq
	if last.keep < 1 || last.keep > last.seq {
		return nil, s.damaged(last.pos, "block %d says that %d is needed", last.seq, last.keep)
	}
	if last.keep < first {
		other := runs[1-active]
		if n := len(other); n == 0 || other[n-1].seq+1 != first || other[0].seq > last.keep {
			return nil, s.damaged(ends[1-active], "blocks %d to %d are needed and not all there", last.keep, first-1)
		}
		live = append(other, live...)
	}
	for live[0].seq < last.keep {
		live = live[1:]
	}
	next := ends[active]
	if last.seal {
		next = s.halfEnd(1-active) - s.header.half
	}
	return live, s.tail(last.seq, next, ends)
}

// tail checks what follows the last block: at next, the following one may have been cut short, but not damaged, and no later one may
// be anywhere.
func (s *journalScan) tail(last uint64, next int64, ends [2]int64) error {
	end := s.halfEnd(0)
	if next >= end {
		end = s.halfEnd(1)
	}
	if next < end {
		b, err := s.bytes(next, sectorSize)
		if err != nil {
			return err
		}
		if !sectorWritten(b) && !allZero(b) {
			return s.damaged(next, "sector where block %d begins is damaged", last+1)
		}
		h, ok, err := s.head(next, end)
		if err != nil {
			return err
		}
		if ok && h.seq == last+1 {
			whole, rotten, err := s.block(&h, next)
			if err != nil {
				return err
			}
			if !whole && rotten >= 0 {
				return s.damaged(rotten, "sector of block %d is damaged", last+1)
			}
		}
	}
	for half, pos := range ends {
		for ; pos < s.halfEnd(half); pos += sectorSize {
			h, ok, err := s.head(pos, s.halfEnd(half))
			if err != nil {
				return err
			}
			if !ok || h.seq <= last {
				continue
			}
			whole, _, err := s.block(&h, pos)
			if err != nil {
				return err
			}
			if whole {
				return s.damaged(next, "block %d is invalid, but block %d at %d was written after it", last+1, h.seq, pos)
			}
		}
	}
	return nil
}
