package main

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// poolBytes is the size of the pool that payloads are cut from.
const poolBytes = 16 << 20

// pool is random bytes that payloads are cut from. Record i is the same in
// every process and in every run, so that a consumer can check what it reads.
type pool []byte

func newPool(size int) pool {
	p := make(pool, size)
	rand.NewChaCha8([32]byte([]byte("billet bench/peers payload pool."))).Read(p)
	return p
}

// record returns payload i. It is a part of the pool: never write to it.
func (p pool) record(i int64, size int) []byte {
	at := i * int64(size+7) % int64(len(p)-size)
	return p[at : at+int64(size) : at+int64(size)]
}

// load is what to ingest: records of one size until one of the bounds is
// reached. A bound of zero is none.
type load struct {
	pool     pool
	size     int
	feeders  int
	records  int64
	duration time.Duration
	// only, unless 0, is the number of the one feeder that gives anything, from 1.
	only int
	stop *atomic.Bool // ends the load when it is true; nil for none
}

// leaderOnly leaves the last feeder of a load, which then gives all of it.
func leaderOnly(l load) load {
	l.only = l.feeders
	return l
}

// start returns the feeders, each for a goroutine of its own, with the clock running.
func (l load) start() []*feeder {
	feeders := make([]*feeder, l.feeders)
	for i := range feeders {
		f := &feeder{load: l, at: int64(i), last: l.records}
		if l.only > 0 {
			f.at, f.idle = 0, i+1 != l.only
		}
		if l.duration > 0 {
			f.deadline = time.Now().Add(l.duration)
		}
		feeders[i] = f
	}
	return feeders
}

// feeder gives every n-th record of a load that n feeders share.
type feeder struct {
	load     load
	at       int64
	last     int64
	given    int64
	idle     bool
	deadline time.Time
}

// next returns the next payload, or false at the end of the load.
func (f *feeder) next() ([]byte, bool) {
	if f.idle || f.last > 0 && f.at >= f.last || f.load.stop != nil && f.load.stop.Load() {
		return nil, false
	}
	if f.given%f.load.clockEvery() == 0 && !f.deadline.IsZero() && time.Now().After(f.deadline) {
		return nil, false
	}
	value := f.load.pool.record(f.at, f.load.size)
	if f.load.only > 0 {
		f.at++
	} else {
		f.at += int64(f.load.feeders)
	}
	f.given++
	return value, true
}

// clockEvery is how many records pass between two looks at the clock: many
// where a feeder gives thousands a second, one where many feeders give few.
func (l load) clockEvery() int64 {
	if l.feeders > 16 {
		return 1
	}
	return 32
}

// given returns how many records the feeders gave.
func given(feeders []*feeder) (records int64) {
	for _, f := range feeders {
		records += f.given
	}
	return records
}
