package main

import (
	"context"
	"fmt"
	"time"
)

// kind says on which end of a comparison a side stands.
type kind int

const (
	kindRaw kind = iota
	kindBillet
	kindPeer
)

// family is a set of cases that come from the same work.
type family struct {
	name     string
	sides    []*side
	cases    []benchCase
	parallel bool // sides of one round run at once: for memory, not for time
	// warmBytes of page cache are filled and freed before each run in a fresh
	// directory, for work that writes about as much: see warm.
	warmBytes int64
}

// side is one way to do a family's work.
type side struct {
	name string
	kind kind
	// runs bounds the number of runs where one takes long; 0 is no bound.
	runs int
	// timeMax bounds a run; 0 is runTimeMax.
	timeMax time.Duration
	// prepare, where there is one, runs once in the directory that all runs
	// then share. Without it each run has a fresh directory.
	prepare func(ctx context.Context, dir string) error
	run     func(ctx context.Context, dir string) (measures, error)
	// finish releases what prepare and run left behind in other processes.
	finish func()
}

// metric names one figure of one side. If over is set, it is the quotient of
// that figure and the same side's or another side's figure.
type metric struct {
	side, name string
	over       *metric
}

// results are all figures of a family's runs.
type results struct {
	values map[string][]float64
	failed map[string]error // by side
}

func newResults() results {
	return results{values: map[string][]float64{}, failed: map[string]error{}}
}

func resultKey(side, name string) string { return side + " " + name }

func (r results) add(side string, m measures) {
	for name, v := range m {
		key := resultKey(side, name)
		r.values[key] = append(r.values[key], v)
	}
}

// median returns the median of a metric, NaN where the side did not run.
func (r results) median(m metric) float64 {
	v := median(r.values[resultKey(m.side, m.name)])
	if m.over != nil {
		v /= r.median(*m.over)
	}
	return v
}

// spread prints the least and the greatest value of a metric.
func (r results) spread(m metric) string {
	values := r.values[resultKey(m.side, m.name)]
	if len(values) == 0 || m.over != nil {
		return "-"
	}
	low, high := values[0], values[0]
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	return number(low) + ".." + number(high)
}

// err returns why a metric is missing, if its side failed.
func (r results) err(m metric) error {
	if err := r.failed[m.side]; err != nil {
		return fmt.Errorf("%s: %w", m.side, err)
	}
	if m.over != nil {
		return r.err(*m.over)
	}
	return nil
}
