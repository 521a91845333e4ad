package vfs

import (
	"fmt"
	"strings"
)

// holderMax bounds what is written to and read from a lock file, in bytes.
const holderMax = 256

// noteHolder writes holder as the first line of the lock file f, before the rest
// is cut off, so that a reader never finds the line missing.
func noteHolder(f File, holder string) error {
	holder = strings.ReplaceAll(holder, "\n", " ")
	line := []byte(holder[:min(len(holder), holderMax-1)] + "\n")
	if _, err := f.WriteAt(line, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(line)))
}

// lockedError is ErrLocked with the holder noted in f, if any.
func lockedError(name string, f File) error {
	var buf [holderMax]byte
	n, _ := f.ReadAt(buf[:], 0)
	if holder, _, ok := strings.Cut(string(buf[:n]), "\n"); ok && holder != "" {
		return fmt.Errorf("%w: %s: held by %q, which must close it first", ErrLocked, name, holder)
	}
	return fmt.Errorf("%w: %s", ErrLocked, name)
}
