package segment

import (
	"fmt"
	"math"
)

// maxSegmentFrames is how many bytes of frames a segment can have.
const maxSegmentFrames = maxSegmentSize - segmentHeaderSize

// validate refuses an extent that no log can have. What it says comes from somebody else.
func (i *ExtentInfo) validate() error {
	if len(i.Segments) == 0 {
		return badExtent("no segment")
	}
	if i.StartOffset != i.Segments[0].BaseOffset {
		return badExtent("start offset %d, the first segment begins at %d", i.StartOffset, i.Segments[0].BaseOffset)
	}
	if i.LastIndex == math.MaxUint64 {
		return badExtent("last index %d", i.LastIndex)
	}
	for n := range i.Segments {
		if err := i.validateSegment(n); err != nil {
			return err
		}
	}
	return nil
}

// validateSegment checks one segment against what comes behind it.
func (i *ExtentInfo) validateSegment(n int) error {
	s, end := &i.Segments[n], i.end(n)
	if s.BaseOffset < 0 || s.FirstIndex == 0 || s.PrevTerm > math.MaxInt32 || s.Bytes < 0 || s.Bytes > maxSegmentFrames {
		return badExtent("segment %d: %+v", n, *s)
	}
	if end.index < s.FirstIndex || end.offset < s.BaseOffset || end.term < s.PrevTerm || end.term > math.MaxInt32 {
		return badExtent("segment %d, %+v, ends with %+v", n, *s, end)
	}
	if n < len(i.Segments)-1 && end.offset == s.BaseOffset {
		return badExtent("segment %d has no record, but is not the last", n)
	}
	// Every entry takes some bytes, and without any nothing moves.
	if entries := end.index - s.FirstIndex; entries > uint64(s.Bytes)/minFrameSize || (entries == 0) != (s.Bytes == 0) ||
		entries == 0 && (end.offset != s.BaseOffset || end.term != s.PrevTerm) {
		return badExtent("segment %d, %+v, has %d entries and ends with %+v", n, *s, entries, end)
	}
	return nil
}

// start is the place of the first frame of a segment.
func (i *ExtentInfo) start(n int) place {
	s := &i.Segments[n]
	return place{pos: segmentHeaderSize, offset: s.BaseOffset, index: s.FirstIndex, term: s.PrevTerm, maxTimestamp: noTimestamp}
}

// end is the place behind the last frame of a segment, but for the timestamp, which is not known.
func (i *ExtentInfo) end(n int) place {
	end := place{offset: i.EndOffset, index: i.LastIndex + 1, term: i.LastTerm}
	if n < len(i.Segments)-1 {
		next := &i.Segments[n+1]
		end = place{offset: next.BaseOffset, index: next.FirstIndex, term: next.PrevTerm}
	}
	end.pos = segmentHeaderSize + i.Segments[n].Bytes
	return end
}

func badExtent(format string, args ...any) error {
	return fmt.Errorf("segment: extent that cannot be: %s: %w", fmt.Sprintf(format, args...), ErrCorrupt)
}
