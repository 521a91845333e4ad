package kafka

import (
	"sync"
	"time"
)

// The bounds of the cursors that a connection keeps for its next fetch. What they hold
// open is freed soon after the client stops reading.
const (
	cursorsMax = 256
	cursorIdle = 5 * time.Second
)

// cursorKey is what a cursor reads.
type cursorKey struct {
	topic  string
	number int32
}

// keptCursor is a cursor that stands behind what it has read.
type keptCursor struct {
	Cursor
	partition Partition
	used      time.Time
}

// cursorCache keeps the cursors of a connection between its fetches, so that reading on
// costs no look-up.
type cursorCache struct {
	mu struct {
		sync.Mutex
		kept  map[cursorKey]keptCursor
		timer *time.Timer
		over  bool
	}
}

// take returns the cursor of a partition.
func (c *cursorCache) take(key cursorKey, p Partition) Cursor {
	c.mu.Lock()
	k, ok := c.mu.kept[key]
	delete(c.mu.kept, key)
	c.mu.Unlock()
	if ok && k.partition == p {
		return k.Cursor
	}
	if ok {
		k.Close()
	}
	return p.NewCursor()
}

// put keeps a cursor that was used.
func (c *cursorCache) put(key cursorKey, p Partition, cursor Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, twice := c.mu.kept[key]; twice || c.mu.over || len(c.mu.kept) >= cursorsMax {
		cursor.Close()
		return
	}
	if c.mu.kept == nil {
		c.mu.kept = map[cursorKey]keptCursor{}
	}
	if len(c.mu.kept) == 0 {
		c.armLocked()
	}
	c.mu.kept[key] = keptCursor{cursor, p, time.Now()}
}

func (c *cursorCache) armLocked() {
	if c.mu.timer == nil {
		c.mu.timer = time.AfterFunc(cursorIdle, c.sweep)
		return
	}
	c.mu.timer.Reset(cursorIdle)
}

// sweep closes what was not used for long.
func (c *cursorCache) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, k := range c.mu.kept {
		if time.Since(k.used) >= cursorIdle {
			k.Close()
			delete(c.mu.kept, key)
		}
	}
	if len(c.mu.kept) > 0 {
		c.armLocked()
	}
}

// close closes all, for good.
func (c *cursorCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.over = true
	if c.mu.timer != nil {
		c.mu.timer.Stop()
	}
	for _, k := range c.mu.kept {
		k.Close()
	}
	c.mu.kept = nil
}
