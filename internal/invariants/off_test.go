//go:build !race && !billet_invariants

package invariants

import "testing"

// TestOffDoesNothing calls everything in a way that would panic or show if it
// were on.
func TestOffDoesNothing(t *testing.T) {
	Check(false, "not looked at")
	var c CloseChecker
	c.Close()
	c.Close()
	c.CheckOpen()
	b := []byte("kept")
	Mangle(b)
	if string(b) != "kept" || Sometimes(100) || Enabled {
		t.Error("something is on")
	}
}
