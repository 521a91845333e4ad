//go:build !race && !billet_invariants

package invariants

// Enabled tells at compile time whether checks are on.
const Enabled = false

// Check does nothing in this build.
func Check(bool, string, ...any) {}

// CloseChecker does nothing in this build.
type CloseChecker struct{}

// Close does nothing in this build.
func (*CloseChecker) Close() {}

// CheckOpen does nothing in this build.
func (*CloseChecker) CheckOpen() {}

// Mangle does nothing in this build.
func Mangle([]byte) {}

// Sometimes is false in this build.
func Sometimes(int) bool { return false }
