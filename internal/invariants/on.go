//go:build race || billet_invariants

package invariants

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
)

// Enabled tells at compile time whether checks are on.
const Enabled = true

// Check panics with the formatted message unless cond holds.
func Check(cond bool, format string, args ...any) {
	if !cond {
		panic("invariant broken: " + fmt.Sprintf(format, args...))
	}
}

// CloseChecker finds double closes and uses after a close. The zero value is
// open. Embed it as a field next to what is closed.
type CloseChecker struct {
	closed atomic.Bool
}

// Close panics when it was called before.
func (c *CloseChecker) Close() {
	Check(!c.closed.Swap(true), "closed twice")
}

// CheckOpen panics after Close.
func (c *CloseChecker) CheckOpen() {
	Check(!c.closed.Load(), "used after close")
}

// Mangle overwrites b, a buffer its user promised not to keep, so that a broken
// promise shows at once.
func Mangle(b []byte) {
	for i := range b {
		b[i] = 0xcc
	}
}

// Sometimes is true about percent times out of a hundred: for taking a rare path
// more often in tests. Off, it is always false.
func Sometimes(percent int) bool {
	return rand.IntN(100) < percent
}
