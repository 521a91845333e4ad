package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/billetlog/billet"
)

// childEnv says that this process of the test binary is one of the drill's.
const childEnv = "BILLET_EXAMPLE_CLUSTER_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
		return
	}
	if err := os.Setenv(childEnv, "1"); err != nil { // for the processes to come
		panic(err)
	}
	os.Exit(m.Run())
}

// TestDrill runs the whole example, with little load.
func TestDrill(t *testing.T) {
	if os.Getenv("BILLET_SLOW") == "" {
		t.Skip("starts processes and takes a while: set BILLET_SLOW=1, or run the example")
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	if err := run(t.Context(), []string{"-phase", "500ms", "-rate", "2000"}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// TestLostProcess shows that a process that cannot work ends the drill, with what it
// said.
func TestLostProcess(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "node-1")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	lost := make(chan error, 1)
	p := &process{id: 1, dir: file, lost: func(err error) { lost <- err }}
	p.args = []string{"-lifeline", "-node", "1", "-listen", "127.0.0.1:0", "-dir", file}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	if err := p.open(t.Context()); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("opening: %v", err)
	}
	if err := <-lost; !strings.Contains(err.Error(), "node 1 ended by itself") {
		t.Errorf("lost: %v", err)
	}
	if err := p.kill(); err != nil {
		t.Error(err)
	}
}

// TestLifeline shows that a process ends when the one that started it is gone.
func TestLifeline(t *testing.T) {
	p := &process{id: 1, dir: filepath.Join(t.TempDir(), "node-1"), lost: func(error) {}}
	p.args = []string{"-lifeline", "-node", "1", "-listen", "127.0.0.1:0", "-dir", p.dir}
	for range 2 { // its directory is good for another one
		if err := p.start(); err != nil {
			t.Fatal(err)
		}
		if err := p.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReaderChecks(t *testing.T) {
	value := func(number string) []byte { return append([]byte(number), 0, 0, 0) }
	record := func(partition int32, offset int64, key, number string) billet.Record {
		return billet.Record{Partition: partition, Offset: offset, Key: []byte(key), Value: value(number)}
	}
	good := []billet.Record{record(0, 0, "a", "0"), record(1, 0, "a", "0"), record(0, 1, "b", "0"), record(0, 2, "a", "1")}
	for name, c := range map[string]struct {
		next billet.Record
		want string
	}{
		"next":       {record(0, 3, "a", "2"), ""},
		"twice":      {record(0, 3, "a", "1"), "record 1 of a was read at 0/3 when it was record 2's turn"},
		"left out":   {record(0, 3, "a", "3"), "record 3 of a was read at 0/3 when it was record 2's turn"},
		"backwards":  {record(0, 1, "a", "2"), "after offset 2"},
		"not ours":   {record(0, 3, "a", "x"), "not written by this program"},
		"no such":    {record(partitions, 0, "a", "0"), "not written by this program"},
		"other load": {record(0, 3, "b", "2"), "record 1's turn"},
	} {
		r := newReader()
		if err := r.take(good); err != nil {
			t.Fatal(err)
		}
		err := r.take([]billet.Record{c.next})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestReaderCompares(t *testing.T) {
	r := newReader()
	for i, number := range []string{"0", "1"} {
		if err := r.take([]billet.Record{{Offset: int64(10 * i), Key: []byte("a"), Value: []byte(number)}}); err != nil {
			t.Fatal(err)
		}
	}
	for want, offsets := range map[string][]int64{
		"":                                  {0, 10},
		"3 records were acknowledged":       {0, 10, 20},
		"1 records were acknowledged":       {0},
		"acknowledged at offset 11 and":     {0, 11},
		"0 records were acknowledged and 2": nil,
	} {
		var acknowledged [partitions][]int64
		acknowledged[0] = offsets
		err := r.compare("a", acknowledged)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", offsets, err, want)
		}
	}
	if err := r.compare("unheard of", [partitions][]int64{}); err != nil {
		t.Error(err)
	}
}

// TestLoadChecks gives a load acknowledgements that must not be.
func TestLoadChecks(t *testing.T) {
	l := newLoad("a", sizeMin, 0)
	l.done(0, 0, billet.Offset{}, nil)
	l.done(0, 1, billet.Offset{Offset: 1}, nil)
	if offsets, total := l.acknowledged(); total != 2 || len(offsets[0]) != 2 || l.mu.err != nil {
		t.Errorf("%d acknowledged, %v", total, l.mu.err)
	}
	l.done(0, 3, billet.Offset{Offset: 2}, nil)
	if l.mu.err == nil || !strings.Contains(l.mu.err.Error(), "record 2's turn") {
		t.Errorf("out of turn: %v", l.mu.err)
	}
	l = newLoad("a", sizeMin, 0)
	l.done(0, 0, billet.Offset{}, billet.ErrTimeout)
	if !errors.Is(l.mu.err, billet.ErrTimeout) {
		t.Errorf("failed record: %v", l.mu.err)
	}
}

func TestSilence(t *testing.T) {
	s := newSilence()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	s.heard(0, at(0))
	s.heard(1, at(10))
	s.heard(0, at(100))
	first := s.cut(at(150))
	if first.acks != 3 || first.all != 90*time.Millisecond || first.by[0] != 100*time.Millisecond || first.by[1] != 140*time.Millisecond || first.by[2] != 0 {
		t.Errorf("first stretch: %+v", first)
	}
	s.heard(1, at(400)) // its silence began before the cut
	second := s.cut(at(401))
	if second.acks != 1 || second.by[1] != 390*time.Millisecond || second.longest() != 390*time.Millisecond || second.all != 300*time.Millisecond {
		t.Errorf("second stretch: %+v", second)
	}
	if second.took != 251*time.Millisecond || second.rate() != 3 {
		t.Errorf("second stretch: %v, %d records/s", second.took, second.rate())
	}
}

func TestPacer(t *testing.T) {
	p := newPacer(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	p.next = time.Now().Add(-3 * time.Hour) // held up: the next ones pass at once
	for range 3 {
		if !p.wait(ctx) {
			t.Fatal("it does not pass")
		}
	}
	cancel()
	if p.wait(ctx) || newPacer(0).wait(ctx) {
		t.Error("it passes after the end")
	}
}

func TestLayout(t *testing.T) {
	at := layout{{Partition: 0, Leader: 2}, {Partition: 1, Leader: 1}, {Partition: 2, Leader: 2}, {Partition: 3, Leader: -1}}
	if s := at.String(); s != "nobody leads 3; node 1 leads 1; node 2 leads 0 2" {
		t.Error(s)
	}
	if at.most() != 2 || (layout{{Leader: -1}}).most() != 0 {
		t.Error(at.most())
	}
	at[0].Replicas = []billet.ReplicaInfo{{Node: 1, InSync: true}, {Node: 2}}
	at[1].Replicas = []billet.ReplicaInfo{{Node: 1, InSync: true}}
	if at.inSync(1) != 2 || at.inSync(2) != 0 {
		t.Error("in sync:", at.inSync(1), at.inSync(2))
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"extra"}, {"-what"}, {"-size", "1"}, {"-phase", "1ms"}, {"-node", "-1"}, {"-node", "1"}, {"-listen", "x"}, {"-produce"},
		{"-node", "1", "-listen", "x", "-dir", "d", "-bootstrap", "1,b"},
	} {
		if err := run(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
	o, err := parseOptions([]string{"-node", "2", "-listen", "a", "-dir", "d", "-join", "b,c", "-bootstrap", "1,2"})
	if err != nil || o.node != 2 || len(o.join) != 2 || len(o.bootstrap) != 2 || o.rate != handRate {
		t.Errorf("%+v, %v", o, err)
	}
}
