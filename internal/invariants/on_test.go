//go:build race || billet_invariants

package invariants

import (
	"strings"
	"testing"
)

// panics returns what f panicked with, or "".
func panics(f func()) (message string) {
	defer func() {
		if r := recover(); r != nil {
			message = r.(string)
		}
	}()
	f()
	return ""
}

func TestCheckPanics(t *testing.T) {
	if got := panics(func() { Check(true, "fine") }); got != "" {
		t.Error(got)
	}
	if got := panics(func() { Check(false, "offset %d", 7) }); !strings.Contains(got, "offset 7") {
		t.Errorf("%q", got)
	}
}

func TestCloseChecker(t *testing.T) {
	var c CloseChecker
	if got := panics(c.CheckOpen); got != "" {
		t.Error(got)
	}
	if got := panics(c.Close); got != "" {
		t.Error(got)
	}
	if panics(c.CheckOpen) == "" || panics(c.Close) == "" {
		t.Error("use after close was not seen")
	}
}

func TestMangleAndSometimes(t *testing.T) {
	b := []byte("kept")
	Mangle(b)
	if string(b) == "kept" {
		t.Error("not mangled")
	}
	if !Sometimes(100) || Sometimes(0) {
		t.Error("percent is not percent")
	}
}
