package vfs

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// ErrInjected is matched by every error that a Trigger makes.
var ErrInjected = errors.New("vfs: injected fault")

// Match picks operations; nil picks all.
type Match func(op Op, name string) bool

// OfKind matches operations of the given kinds.
func OfKind(ops ...Op) Match {
	return func(op Op, _ string) bool { return slices.Contains(ops, op) }
}

// Trigger makes one operation, or all from one on, fail; pass its Fault to Inject.
// To try every point of failure, raise n from 1 until a run ends with Fired false.
type Trigger struct {
	match Match
	from  int64 // counted from 1
	to    int64 // 0 for no end
	fail  func(op Op, name string) error
	seen  atomic.Int64
	fired atomic.Int64
}

// FailNth makes exactly the n-th (from 1) operation that matches fail with err,
// or with ErrInjected alone when err is nil.
func FailNth(n int, match Match, err error) *Trigger {
	return &Trigger{match: match, from: int64(n), to: int64(n), fail: failWith(err)}
}

// FailFrom makes the n-th (from 1) operation that matches and all later ones fail:
// with a nil match, as if the disk was pulled.
func FailFrom(n int, match Match, err error) *Trigger {
	return &Trigger{match: match, from: int64(n), fail: failWith(err)}
}

// TornWrite makes the n-th (from 1) write that matches put down only its first
// keep bytes and then fail with err.
func TornWrite(n int, keep ByteCount, match Match, err error) *Trigger {
	writes := func(op Op, name string) bool {
		return op == OpWrite && (match == nil || match(op, name))
	}
	fail := failWith(err)
	return &Trigger{match: writes, from: int64(n), to: int64(n), fail: func(op Op, name string) error {
		return &tornError{keep: int(keep), err: fail(op, name)}
	}}
}

// ByteCount is a number of bytes, where a bare integer beside another one would
// be easy to mix up.
type ByteCount int

func failWith(err error) func(Op, string) error {
	return func(op Op, name string) error {
		if err == nil {
			return fmt.Errorf("%w: %s %s", ErrInjected, op, name)
		}
		return fmt.Errorf("%w: %s %s: %w", ErrInjected, op, name, err)
	}
}

// Fault is the function to pass to Inject.
func (t *Trigger) Fault(op Op, name string, _ int64, _ int) error {
	if t.match != nil && !t.match(op, name) {
		return nil
	}
	seen := t.seen.Add(1)
	if seen < t.from || t.to > 0 && seen > t.to {
		return nil
	}
	t.fired.Add(1)
	return t.fail(op, name)
}

// Fired tells whether an operation was made to fail.
func (t *Trigger) Fired() bool { return t.fired.Load() > 0 }

// Seen returns how many operations matched so far.
func (t *Trigger) Seen() int { return int(t.seen.Load()) }
