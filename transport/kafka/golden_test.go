package kafka

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// golden holds bytes against those in a file, which never change: what was kept in an
// older version has to be read.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
	if err != nil {
		t.Fatalf("%v; now it is\n%s", err, hex.EncodeToString(got))
	}
	if strings.TrimSpace(string(want)) != hex.EncodeToString(got) {
		t.Errorf("%s is\n%s, want\n%s", name, hex.EncodeToString(got), want)
	}
}
