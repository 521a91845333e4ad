package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"time"
)

// Bounds of one step; a step that does not return in time is given up and its
// side fails.
const (
	prepareTimeMax = 5 * time.Minute
	runTimeMax     = 3 * time.Minute
)

// run does all rounds of a family in dir and returns its figures.
func (f family) run(ctx context.Context, dir string, o options) results {
	r := newResults()
	defer f.finish()
	for _, s := range f.sides {
		if s.prepare == nil {
			continue
		}
		notes.Printf("%s: %s: prepare", f.name, s.name)
		if err := within(ctx, prepareTimeMax, func(ctx context.Context) error {
			shared := sideDir(dir, s)
			if err := os.MkdirAll(shared, 0o755); err != nil {
				return err
			}
			return s.prepare(ctx, shared)
		}); err != nil {
			r.fail(f, s, err)
		}
		settle(dir)
	}
	for round := range o.runs {
		f.round(ctx, dir, round, o, r)
	}
	return r
}

func (f family) finish() {
	for _, s := range f.sides {
		if s.finish != nil {
			s.finish()
		}
	}
}

func (r results) fail(f family, s *side, err error) {
	notes.Printf("%s: %s: %v", f.name, s.name, err)
	r.failed[s.name] = err
}

// round runs each side once, in order.
func (f family) round(ctx context.Context, dir string, round int, o options, r results) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, s := range f.sides {
		if r.failed[s.name] != nil || (s.runs > 0 && round >= s.runs) {
			continue
		}
		one := func() {
			m, err := f.runSide(ctx, dir, s, o.profileDir)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.fail(f, s, err)
				return
			}
			notes.Printf("%s: %s: run %d: %s", f.name, s.name, round+1, m)
			r.add(s.name, m)
		}
		if f.parallel {
			wg.Go(one)
			continue
		}
		one()
		settle(dir)
	}
	wg.Wait()
}

// runSide runs a side once.
func (f family) runSide(ctx context.Context, dir string, s *side, profileDir string) (measures, error) {
	dir = sideDir(dir, s)
	if s.prepare == nil {
		defer os.RemoveAll(dir)
		if err := errors.Join(os.MkdirAll(dir, 0o755), warm(dir, f.warmBytes)); err != nil {
			return nil, err
		}
	}
	if s.kind == kindBillet && profileDir != "" && !f.parallel {
		stop, err := profile(filepath.Join(profileDir, f.name+".pprof"))
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	limit := s.timeMax
	if limit == 0 {
		limit = runTimeMax
	}
	var m measures
	err := within(ctx, limit, func(ctx context.Context) (err error) {
		m, err = s.run(ctx, dir)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func sideDir(dir string, s *side) string {
	return filepath.Join(dir, strings.ReplaceAll(s.name, "/", "-"))
}

// within runs step with a context that ends after limit. A step that ignores
// its context is abandoned a little later.
func within(ctx context.Context, limit time.Duration, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				notes.Printf("%v\n%s", p, debug.Stack())
				done <- fmt.Errorf("panic: %v", p)
			}
		}()
		done <- step(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(10 * time.Second):
		return fmt.Errorf("given up: %w", context.Cause(ctx))
	}
}

// settle gives every run the same start: an empty heap and no dirty pages.
func settle(dir string) {
	runtime.GC()
	debug.FreeOSMemory()
	if err := syncFS(dir); err != nil {
		notes.Printf("sync %s: %v", dir, err)
	}
	time.Sleep(50 * time.Millisecond)
}

// warm fills size bytes of page cache and frees them. On a virtual machine the
// host may have taken free memory back, and whoever comes first then pays for
// getting it again: several times what a write costs otherwise.
func warm(dir string, size int64) (err error) {
	if size == 0 {
		return nil
	}
	w, err := newAppender(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	block := newPool(1<<20+1).record(0, 1<<20)
	for range size / int64(len(block)) {
		if err := w.write(block); err != nil {
			return err
		}
	}
	return nil
}

// profile writes a CPU profile of this process until stop.
func profile(path string) (stop func(), err error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		file.Close()
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		if err := file.Close(); err != nil {
			notes.Print(err)
		}
	}, nil
}
