package main

import (
	"encoding/binary"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// pacer sleeps to a fixed rate by the kernel's clock, on a thread of its own:
// Go's timers are too coarse below a millisecond.
type pacer struct {
	next     int64
	interval time.Duration
}

func newPacer(interval time.Duration) *pacer {
	runtime.LockOSThread()
	return &pacer{next: monotonic(), interval: interval}
}

func (p *pacer) stop() { runtime.UnlockOSThread() }

// wait sleeps until the next tick and returns how late the caller came for it:
// zero unless it was still busy then.
func (p *pacer) wait() (late time.Duration) {
	p.next += int64(p.interval)
	if late := monotonic() - p.next; late > 0 {
		return time.Duration(late)
	}
	until := unix.NsecToTimespec(p.next)
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil) == unix.EINTR {
	}
	return 0
}

func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // the clock of every Linux
	}
	return now.Nano()
}

// stamp writes when a record was sent into its first eight bytes.
func stamp(value []byte, at time.Duration) { binary.LittleEndian.PutUint64(value, uint64(at)) }

// stamped reads it.
func stamped(value []byte) (time.Duration, error) {
	if len(value) < 8 {
		return 0, io.ErrUnexpectedEOF
	}
	return time.Duration(binary.LittleEndian.Uint64(value)), nil
}
