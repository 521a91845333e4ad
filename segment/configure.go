package segment

import (
	"fmt"
	"time"
)

// Configure changes when segments are rolled, from the next entry on. See
// Options.SegmentBytes and Options.SegmentAge.
func (l *Log) Configure(segmentBytes int64, segmentAge time.Duration) error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	o := l.options
	o.SegmentBytes, o.SegmentAge = segmentBytes, segmentAge
	if err := o.validate(); err != nil {
		return fmt.Errorf("segment: configuring %s: %w", l.options.Dir, err)
	}
	l.options.SegmentBytes, l.options.SegmentAge = segmentBytes, segmentAge
	return nil
}
