package replication

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
)

// store is a replica that has no group: the test calls the log store as dragonboat would.
type store struct {
	*replica
	t   testing.TB
	db  *logDB
	p   *Partition
	end int64 // of the offsets given out by data
}

// openStore opens the files of a replica, without a group.
func openStore(t testing.TB, n *testNode, spec PartitionSpec) *store {
	t.Helper()
	p := n.host.newPartition(spec)
	if err := p.open(true); err != nil {
		t.Fatal(err)
	}
	if err := n.host.publish(p); err != nil {
		t.Fatal(err)
	}
	return &store{replica: p.r, t: t, db: n.host.db, p: p, end: p.EndOffset()}
}

func (s *store) update(st pb.State, entries ...pb.Entry) pb.Update {
	return pb.Update{ShardID: s.key.Shard, ReplicaID: s.key.Replica, State: st, EntriesToSave: entries}
}

func (s *store) save(st pb.State, entries ...pb.Entry) {
	s.t.Helper()
	if err := s.db.SaveRaftState([]pb.Update{s.update(st, entries...)}, 1); err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) iterate(low, high, maxSize uint64) []pb.Entry {
	s.t.Helper()
	ents, size, err := s.db.IterateEntries(nil, 0, s.key.Shard, s.key.Replica, low, high, maxSize)
	if err != nil {
		s.t.Fatal(err)
	}
	sum := uint64(0)
	for i := range ents {
		if ents[i].Index != low+uint64(i) {
			s.t.Fatalf("entry %d has index %d, want %d", i, ents[i].Index, low+uint64(i))
		}
		sum += uint64(ents[i].SizeUpperLimit())
	}
	if size != sum {
		s.t.Errorf("size is %d, the entries have %d", size, sum)
	}
	return ents
}

func (s *store) raftState() (pb.State, uint64, uint64) {
	s.t.Helper()
	rs, err := s.db.ReadRaftState(s.key.Shard, s.key.Replica, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	return rs.State, rs.FirstIndex, rs.EntryCount
}

func (s *store) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.cause
}

func noop(index, term uint64) pb.Entry { return pb.Entry{Index: index, Term: term} }

// data makes an entry that takes effect.
func (s *store) data(index, term uint64, value string) pb.Entry {
	s.t.Helper()
	b := textBatch(s.t, value)
	b.SetBaseOffset(s.end)
	b.SetLeaderEpoch(int32(term))
	s.end++
	return pb.Entry{Index: index, Term: term, Type: pb.EncodedEntry, Key: 3, ClientID: 3, Cmd: append([]byte{encodedHeader}, b...)}
}

func configChange(index, term uint64) pb.Entry {
	cc := pb.ConfigChange{Type: pb.AddNonVoting, ReplicaID: 9, Address: "node-9"}
	return pb.Entry{Index: index, Term: term, Type: pb.ConfigChangeEntry, Cmd: pb.MustMarshal(&cc), Key: 5}
}

// Several workers save at the same time, small and large entries, and what was saved survives a power cut.
func TestStoreManyWorkers(t *testing.T) {
	mem := vfs.NewMem()
	n := memNodeWith(t, mem, 256<<10)
	const workers, each, rounds = 4, 3, 25
	want := map[uint64][]pb.Entry{}
	spec := func(shard uint64) PartitionSpec {
		s := testSpec(t, 1)
		s.Shard, s.Partition, s.Settings.SegmentBytes = shard, int32(shard), 128<<10
		return s
	}
	var stores []*store
	for i := range workers * each {
		stores = append(stores, openStore(t, n, spec(uint64(2+i))))
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for w := range workers {
		mine := stores[w*each : (w+1)*each]
		lists := make([][]pb.Entry, each)
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 5))
			for round := range uint64(rounds) {
				var updates []pb.Update
				for i, s := range mine {
					e := noop(2, 1)
					if round > 0 {
						e = s.data(2+round, 1, strings.Repeat("x", rng.IntN([]int{10, 3000, 90 << 10}[rng.IntN(3)])))
					}
					lists[i] = append(lists[i], e)
					updates = append(updates, s.update(pb.State{Term: 1, Vote: s.key.Replica, Commit: 1 + round}, e))
				}
				if err := n.host.db.SaveRaftState(updates, uint64(w+1)); err != nil {
					t.Error(err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for i, s := range mine {
				want[s.key.Shard] = lists[i]
			}
		})
	}
	wg.Wait()
	again := memNodeWith(t, mem.CrashClone(vfs.CrashOptions{}), 256<<10)
	for shard, entries := range want {
		s := openStore(t, again, spec(shard))
		got := s.iterate(2, 2+rounds, math.MaxUint64)
		for i := range entries {
			if !bytes.Equal(got[i].Cmd, entries[i].Cmd) || got[i].Term != 1 {
				t.Errorf("shard %d entry %d differs", shard, i)
			}
		}
	}
	again.close()
	n.close()
}

// fill saves a no-op and data entries up to last.
func (s *store) fill(term, first, last uint64, size int) {
	s.t.Helper()
	s.save(pb.State{Term: term, Vote: s.key.Replica, Commit: first - 1}, noop(first, term))
	for i := first + 1; i <= last; i++ {
		s.save(pb.State{}, s.data(i, term, strings.Repeat(string(rune('a'+i%26)), size)))
	}
}

// A new leader replaces the end of the log, over several segments and below the durable mark. Power fails before each operation: the log
// opens, has what was not replaced, and of the rest the old entries or the new ones.
func TestStoreConflictCrash(t *testing.T) {
	for _, keep := range []float64{0, 0.5, 1} {
		t.Run(fmt.Sprint("keep=", keep), func(t *testing.T) { conflictCrash(t, keep) })
	}
}

func conflictCrash(t *testing.T, keep float64) {
	const from, last = 8, 30
	spec := testSpec(t, 1)
	spec.Settings.SegmentBytes = 64 << 10
	mem := vfs.NewMem()
	var mu sync.Mutex
	var clones []*vfs.Mem
	armed := false
	n := memNodeWith(t, vfs.Inject(mem, func(op vfs.Op, _ string, _ int64, _ int) error {
		mu.Lock()
		defer mu.Unlock()
		if armed && op.Changes() {
			clones = append(clones, mem.CrashClone(vfs.CrashOptions{KeepUnsynced: keep, Rand: rand.New(rand.NewPCG(uint64(len(clones)), 9))}))
		}
		return nil
	}), 512<<10)
	s := openStore(t, n, spec)
	s.fill(2, 2, last, 12<<10)
	if len(s.currentLog().Segments()) < 4 {
		t.Fatalf("only %d segments", len(s.currentLog().Segments()))
	}
	s.commitSlot() // the mark is at the end
	if s.mu.slot.Mark != last {
		t.Fatalf("the mark is %d", s.mu.slot.Mark)
	}
	old := s.replica.currentLog()
	before := s.iterate(2, last+1, math.MaxUint64)
	cut, err := old.Frame(from)
	if err != nil {
		t.Fatal(err)
	}
	s.end = cut.BaseOffset
	after := append([]pb.Entry(nil), before[:from-2]...)
	after = append(after, noop(from, 3), s.data(from+1, 3, "new"), s.data(from+2, 3, strings.Repeat("n", 70<<10)))
	mu.Lock()
	armed = true
	mu.Unlock()
	s.save(pb.State{Term: 3, Vote: 0, Commit: from - 1}, after[from-2:]...)
	mu.Lock()
	armed = false
	clones = append(clones, mem.CrashClone(vfs.CrashOptions{KeepUnsynced: keep}))
	mu.Unlock()
	if s.latched.Load() {
		t.Fatal(s.why())
	}
	for i, fs := range clones {
		again := memNodeWith(t, fs, 512<<10)
		r := openStore(t, again, spec)
		end := r.currentLog().LastIndex()
		got := r.iterate(2, end+1, math.MaxUint64)
		if end < from-1 || (i == len(clones)-1 && end != from+2) {
			t.Fatalf("crash %d of %d: the log ends at %d", i, len(clones), end)
		}
		for j, e := range got {
			was := j < len(before) && e.Term == before[j].Term && bytes.Equal(e.Cmd, before[j].Cmd)
			is := j < len(after) && e.Term == after[j].Term && bytes.Equal(e.Cmd, after[j].Cmd)
			if !is && (!was || i == len(clones)-1) {
				t.Fatalf("crash %d of %d: entry %d is neither the old nor the new one", i, len(clones), e.Index)
			}
		}
		again.close()
	}
	t.Logf("%d crashes", len(clones))
	n.close()
}

// A batch that does not continue the log is void: it comes back as a marker, and is void on a replica that gets the marker, too.
func TestStoreVoid(t *testing.T) {
	n := memNodeWith(t, vfs.NewMem(), 0)
	spec := testSpec(t, 1)
	s := openStore(t, n, spec)
	good := s.data(3, 2, "good")
	stale := s.data(4, 2, "stale")
	stale.Term = 3 // its epoch is another one
	s.end -= 1
	gap := s.data(6, 3, "gap")
	gap.Cmd[1+7]++ // base offset
	next := s.data(7, 3, "next")
	s.end -= 1
	next.Cmd = s.data(7, 3, "next").Cmd
	stale.Index = 5
	s.save(pb.State{Term: 3, Commit: 1}, noop(2, 2), good, noop(4, 3), stale, gap)
	last := textBatch(t, "last")
	last.SetBaseOffset(1)
	last.SetLeaderEpoch(3)
	s.save(pb.State{}, pb.Entry{Index: 7, Term: 3, Type: pb.EncodedEntry, Key: 3, ClientID: 3, Cmd: append([]byte{encodedHeader}, last...)})
	kinds := func(s *store) (out []segment.Kind) {
		for i := uint64(2); i <= 7; i++ {
			f, err := s.currentLog().Frame(i)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, f.Kind)
		}
		return out
	}
	want := fmt.Sprint([]segment.Kind{segment.KindNoOp, segment.KindData, segment.KindNoOp, segment.KindVoid, segment.KindVoid, segment.KindData})
	if got := fmt.Sprint(kinds(s)); got != want {
		t.Fatalf("kinds are %v, want %v", got, want)
	}
	ents := s.iterate(2, 8, math.MaxUint64)
	for i, e := range ents {
		if isVoid := i == 3 || i == 4; isVoid != bytes.Equal(e.Cmd, voidMarker) {
			t.Errorf("entry %d comes back as %v", e.Index, e.Cmd[:min(len(e.Cmd), 4)])
		}
		if e.Type == pb.EncodedEntry && (e.Key == 0 || e.ClientID == 0) {
			t.Errorf("entry %d has no key or client, which dragonboat does not take", e.Index)
		}
	}
	other := spec
	other.Shard, other.Partition = 3, 1
	o := openStore(t, n, other)
	o.save(pb.State{Term: 3, Commit: 1}, ents...)
	if got := fmt.Sprint(kinds(o)); got != want || o.p.EndOffset() != s.p.EndOffset() {
		t.Errorf("the other replica has %v up to %d, want %v up to %d", got, o.p.EndOffset(), want, s.p.EndOffset())
	}
	n.close()
}

// What dragonboat resumes from lies within the log.
func TestStoreRaftState(t *testing.T) {
	mem := vfs.NewMem()
	n := memNodeWith(t, mem, 0)
	spec := testSpec(t, 1)
	s := openStore(t, n, spec)
	if st, first, count := s.raftState(); st.Commit != genesisIndex || first != genesisIndex+1 || count != 0 {
		t.Errorf("of a new replica: %+v, first %d, %d entries", st, first, count)
	}
	s.fill(4, 2, 10, 10)
	s.save(pb.State{Term: 4, Vote: s.key.Replica, Commit: 9})
	if st, first, count := s.raftState(); st != (pb.State{Term: 4, Vote: s.key.Replica, Commit: 9}) || first != 2 || count != 9 {
		t.Errorf("%+v, first %d, %d entries", st, first, count)
	}
	record := genesisRecord(2, map[uint64]string{s.key.Replica: "node-1"})
	record.Index, record.Term, record.OnDiskIndex = 6, 4, 6
	if err := s.db.SaveSnapshots([]pb.Update{{ShardID: 2, ReplicaID: s.key.Replica, Snapshot: record}}); err != nil {
		t.Fatal(err)
	}
	clone := mem.CrashClone(vfs.CrashOptions{})
	n.close()

	// The commit was kept lazily: it is below the record, and is raised to it.
	n = memNodeWith(t, clone, 0)
	s = openStore(t, n, spec)
	if st, first, count := s.raftState(); st.Commit < 6 || st.Term != 4 || first != 7 || count != 4 {
		t.Errorf("after a power cut: %+v, first %d, %d entries", st, first, count)
	}
	// A slot that says that more was committed than there is tells of a loss: nothing is clamped.
	s.mu.Lock()
	img := s.mu.slot
	img.Commit = 11
	_, err := s.putImageLocked(img)
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	s.syncSlot(s.mu.slot.Seq)
	s.latch(errors.New("keeps close from writing the slot"))
	_ = n.host.Close(testContext(t))
	n = memNodeWith(t, clone, 0)
	p := n.start(spec, false)
	if state, cause := p.State(); state != StateQuarantined || !errors.Is(cause, errLostEntries) {
		t.Errorf("with a commit above the end: %v, %v", state, cause)
	}
	n.close()
}

// Raft commits a single voter's entries before they are stored. Power fails right after the slot was written: no image of it speaks of
// entries that are not there.
func TestStoreCommitAheadOfDiskCrash(t *testing.T) {
	for _, policy := range []Fsync{FsyncCommit, FsyncInterval} {
		t.Run(policy.String(), func(t *testing.T) {
			spec := testSpec(t, 1)
			spec.Settings.Fsync = policy
			mem := vfs.NewMem()
			var mu sync.Mutex
			var clones []*vfs.Mem
			n := memNodeWith(t, vfs.Inject(mem, func(op vfs.Op, _ string, _ int64, _ int) error {
				mu.Lock()
				defer mu.Unlock()
				if op == vfs.OpSync {
					for seed := range uint64(6) {
						clones = append(clones, mem.CrashClone(vfs.CrashOptions{KeepUnsynced: 0.5, Rand: rand.New(rand.NewPCG(seed, 4))}))
					}
				}
				return nil
			}), 0)
			s := openStore(t, n, spec)
			mu.Lock()
			clones = nil
			mu.Unlock()
			s.save(pb.State{Term: 2, Vote: s.key.Replica, Commit: 2}, noop(2, 2))
			s.save(pb.State{Term: 3, Vote: s.key.Replica, Commit: 4}, noop(3, 3), s.data(4, 3, "x"))
			u := s.update(pb.State{Term: 3, Vote: s.key.Replica, Commit: 5}, configChange(5, 3))
			u.CommittedEntries = u.EntriesToSave
			if err := s.db.SaveRaftState([]pb.Update{u}, 1); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			all := append(slices.Clone(clones), mem.CrashClone(vfs.CrashOptions{})) // the keeper may go on to sync
			mu.Unlock()
			for i, fs := range all {
				again := memNodeWith(t, fs, 0)
				p := again.host.newPartition(spec)
				err := p.open(false)
				if err != nil {
					t.Errorf("crash %d of %d: %v", i, len(all), err)
				} else {
					if st := p.r.mu.state; i == len(all)-1 && (st.Commit < 5 || p.r.currentLog().LastIndex() < 5) {
						t.Errorf("a committed membership change is not found again: commit %d, last %d", st.Commit, p.r.currentLog().LastIndex())
					}
					if err := p.r.closeFiles(false); err != nil {
						t.Error(err)
					}
				}
				again.close()
			}
			n.close()
		})
	}
}

// The slot is synced when term or vote change and when a membership change is committed, and for nothing else.
func TestStoreSlotSyncs(t *testing.T) {
	count := vfs.Count(vfs.NewMem())
	n := memNodeWith(t, count, -1)
	s := openStore(t, n, testSpec(t, 1))
	syncs := func(what string, want int64, u pb.Update) {
		t.Helper()
		seq := s.mu.slots.Seq()
		count.Reset()
		if err := s.db.SaveRaftState([]pb.Update{u}, 1); err != nil {
			t.Fatal(err)
		}
		if got := count.Ops(vfs.OpSync); got != want {
			t.Errorf("%s: %d syncs, want %d (slot written: %v)", what, got, want, s.mu.slots.Seq() != seq)
		}
	}
	st := pb.State{Term: 2, Vote: s.key.Replica, Commit: 1}
	syncs("term and entry", 2, s.update(st, noop(2, 2)))
	syncs("entries alone", 1, s.update(pb.State{}, s.data(3, 2, "x")))
	st.Commit = 3
	syncs("commit alone", 0, s.update(st))
	st.Commit = 4
	syncs("commit and entry", 1, s.update(st, s.data(4, 2, "x")))
	st.Vote = 0
	syncs("vote", 1, s.update(st))
	syncs("membership change, stored", 1, s.update(pb.State{}, configChange(5, 2)))
	st.Commit = 5
	u := s.update(st)
	u.CommittedEntries = []pb.Entry{configChange(5, 2)}
	syncs("membership change, committed", 1, u)
	if s.mu.slot.Commit != 5 {
		t.Errorf("the slot's commit is %d", s.mu.slot.Commit)
	}
	u.State, u.CommittedEntries = pb.State{}, []pb.Entry{s.data(6, 2, "x")}
	syncs("data committed", 0, u)
	n.close()
}

func TestStoreIterateLimits(t *testing.T) {
	n := memNodeWith(t, vfs.NewMem(), 0)
	s := openStore(t, n, testSpec(t, 1))
	s.fill(2, 2, 20, 100)
	all := s.iterate(2, 21, math.MaxUint64)
	if len(all) != 19 {
		t.Fatalf("%d entries", len(all))
	}
	one := uint64(all[1].SizeUpperLimit())
	whole := func(ents []pb.Entry) {
		t.Helper()
		for _, e := range ents {
			if !bytes.Equal(e.Cmd, all[e.Index-2].Cmd) || e.Type != all[e.Index-2].Type {
				t.Errorf("entry %d comes back with %d bytes of %d", e.Index, len(e.Cmd), len(all[e.Index-2].Cmd))
			}
		}
	}
	if got := s.iterate(3, 21, 0); len(got) != 1 || got[0].Term != 2 {
		t.Errorf("size 0: %v", got)
	}
	for k := uint64(1); k <= 18; k++ {
		for d := -3; d <= 3; d++ {
			limit := uint64(int64(k*one) + int64(d))
			got := s.iterate(3, 21, limit)
			whole(got)
			size := uint64(0)
			for _, e := range got[:len(got)-1] {
				size += uint64(e.SizeUpperLimit())
			}
			if size > limit {
				t.Errorf("limit %d: %d entries, without the last one already %d bytes", limit, len(got), size)
			}
		}
	}
	whole(s.iterate(3, 21, 1))
	if got := s.iterate(19, 40, math.MaxUint64); len(got) > 2 {
		t.Errorf("%d entries beyond the end", len(got))
	}
	n.close()
}

func TestStoreKeepsThreeRecords(t *testing.T) {
	mem := vfs.NewMem()
	n := memNodeWith(t, mem, 0)
	spec := testSpec(t, 1)
	s := openStore(t, n, spec)
	s.fill(2, 2, 20, 10)
	put := func(index uint64) {
		t.Helper()
		r := genesisRecord(2, map[uint64]string{s.key.Replica: "node-1"})
		r.Index, r.Term, r.OnDiskIndex, r.Dummy = index, 2, index, false
		if err := s.db.SaveSnapshots([]pb.Update{{ShardID: 2, ReplicaID: s.key.Replica, Snapshot: r}}); err != nil {
			t.Fatal(err)
		}
		if got, err := s.db.GetSnapshot(2, s.key.Replica); err != nil || got.Index != max(index, 15) && got.Index != index {
			t.Fatalf("after record %d the newest is %d, %v", index, got.Index, err)
		}
	}
	for _, i := range []uint64{5, 8, 11, 15} {
		put(i)
	}
	put(9)  // older than the newest
	put(15) // the same again
	if err := s.db.SaveSnapshots([]pb.Update{{ShardID: 2, ReplicaID: s.key.Replica}}); err != nil {
		t.Fatal(err)
	}
	fs := mem.CrashClone(vfs.CrashOptions{})
	n.close()
	n = memNodeWith(t, fs, 0)
	s = openStore(t, n, spec)
	var kept []uint64
	for _, r := range s.mu.records {
		kept = append(kept, r.Index)
		if !r.Dummy {
			t.Errorf("record %d is said to have a file", r.Index)
		}
	}
	if fmt.Sprint(kept) != "[8 11 15]" {
		t.Errorf("records %v are kept", kept)
	}
	n.close()
}

// The store makes a record of its own for the newest checkpoint, but never over a membership change, which it does not know.
func TestStoreStartRecord(t *testing.T) {
	saved := genesisRecord(2, map[uint64]string{7: "node-7"})
	saved.Index, saved.Term, saved.OnDiskIndex = 10, 3, 10
	for _, c := range []struct {
		checkpoint, lastConfig, want uint64
	}{
		{20, 0, 20}, {20, 9, 20}, {20, 10, 20}, {20, 11, 10}, {20, 25, 10}, {10, 0, 10}, {5, 0, 10},
	} {
		got := startRecord(saved, segment.Checkpoint{Index: c.checkpoint, Term: 4}, c.lastConfig)
		if got.Index != c.want || got.OnDiskIndex != c.want || got.Membership.Addresses[7] != "node-7" || !got.Dummy {
			t.Errorf("checkpoint %d, change at %d: record at %d, want %d", c.checkpoint, c.lastConfig, got.Index, c.want)
		}
	}
}

// A replica whose disk fails goes on in memory: what it is given it gives back, beside what is on the disk, and other replicas of the
// same call are saved.
func TestStoreLatched(t *testing.T) {
	var mu sync.Mutex
	broken := ""
	mem := vfs.NewMem()
	n := memNodeWith(t, vfs.Inject(mem, func(op vfs.Op, name string, _ int64, _ int) error {
		mu.Lock()
		defer mu.Unlock()
		if op == vfs.OpWrite && broken != "" && strings.Contains(name, broken) {
			return errors.New("EIO")
		}
		return nil
	}), 0)
	other := testSpec(t, 1)
	other.Shard, other.Partition = 3, 1
	s, o := openStore(t, n, testSpec(t, 1)), openStore(t, n, other)
	s.fill(2, 2, 5, 10)
	o.fill(2, 2, 5, 10)
	mu.Lock()
	broken = "/2-"
	mu.Unlock()
	lost, kept := s.data(6, 2, "lost"), o.data(6, 2, "kept")
	if err := s.db.SaveRaftState([]pb.Update{s.update(pb.State{}, lost), o.update(pb.State{}, kept)}, 1); err != nil {
		t.Fatal(err)
	}
	if !s.latched.Load() || o.latched.Load() || s.why() == nil {
		t.Fatalf("latched: %v and %v, because of %v", s.latched.Load(), o.latched.Load(), s.why())
	}
	if !s.db.muted(2, s.key.Replica) || s.db.muted(3, o.key.Replica) {
		t.Error("the latched replica may speak, or the other one may not")
	}
	s.save(pb.State{Term: 3, Commit: 5}, noop(7, 3)) // nothing happens to the file any more
	got := s.iterate(4, 8, math.MaxUint64)
	if len(got) != 4 || !bytes.Equal(got[2].Cmd, lost.Cmd) || got[3].Term != 3 {
		t.Errorf("read back: %v", got)
	}
	if got := s.iterate(6, 8, 1); len(got) != 1 {
		t.Errorf("%d entries of the overlay in 1 byte", len(got))
	}
	if last := s.currentLog().LastIndex(); last != 5 {
		t.Errorf("the log ends at %d", last)
	}
	if err := s.db.SaveSnapshots([]pb.Update{{ShardID: 2, ReplicaID: s.key.Replica, Snapshot: pb.Snapshot{ShardID: 2, Index: 5, Term: 2}}}); err != nil {
		t.Error(err)
	}
	_ = n.host.Close(testContext(t))
	n = memNodeWith(t, mem, 0)
	o = openStore(t, n, other)
	if got := o.iterate(6, 7, math.MaxUint64); len(got) != 1 || !bytes.Equal(got[0].Cmd, kept.Cmd) {
		t.Errorf("of the other replica: %v", got)
	}
	n.close()
}

// A failed install leaves the log that was there for those who read.
func TestStoreInstallFails(t *testing.T) {
	var mu sync.Mutex
	armed := false
	n := memNodeWith(t, vfs.Inject(vfs.NewMem(), func(op vfs.Op, name string, _ int64, _ int) error {
		mu.Lock()
		defer mu.Unlock()
		if armed && op == vfs.OpWrite && strings.HasSuffix(name, segment.SlotFileName) {
			return errors.New("EIO")
		}
		return nil
	}), 0)
	s := openStore(t, n, testSpec(t, 1))
	s.fill(2, 2, 5, 10)
	staged, err := segment.Create(n.host.segmentOptions(s.replica, 2, s.mu.slot.Identity), segment.Start{FirstIndex: 41, PrevTerm: 5, Offset: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := staged.Close(true); err != nil {
		t.Fatal(err)
	}
	s.stage(40, 5, 2)
	before := s.currentLog()
	mu.Lock()
	armed = true
	mu.Unlock()
	u := s.update(pb.State{Term: 5, Commit: 40}, noop(41, 6))
	u.Snapshot = genesisRecord(2, map[uint64]string{s.key.Replica: "node-1"})
	u.Snapshot.Index, u.Snapshot.Term, u.Snapshot.OnDiskIndex = 40, 5, 40
	if err := s.db.SaveRaftState([]pb.Update{u}, 1); err != nil || !s.latched.Load() {
		t.Fatalf("error %v, latched %v", err, s.latched.Load())
	}
	if s.currentLog() != before || s.mu.slot.Generation != firstGeneration || s.record().Index != genesisIndex {
		t.Errorf("generation %d, record %d", s.mu.slot.Generation, s.record().Index)
	}
	if got := s.iterate(3, 6, math.MaxUint64); len(got) != 3 {
		t.Errorf("%d entries of the old log", len(got))
	}
	_ = n.host.Close(testContext(t))
}

// Without a journal, and when its writing fails in the middle, what was acknowledged survives a power cut.
func TestJournalOff(t *testing.T) {
	for _, c := range []struct {
		name    string
		journal int64
		op      vfs.Op
	}{{"none", -1, vfs.OpWrite}, {"write fails", 64 << 10, vfs.OpWrite}, {"sync fails", 64 << 10, vfs.OpSync}} {
		t.Run(c.name, func(t *testing.T) {
			mem := vfs.NewMem()
			var mu sync.Mutex
			left := -1
			n := memNodeWith(t, vfs.Inject(mem, func(op vfs.Op, name string, _ int64, _ int) error {
				mu.Lock()
				defer mu.Unlock()
				if op == c.op && strings.Contains(name, "/journal") && left > 0 {
					if left--; left == 0 {
						return errors.New("EIO")
					}
				}
				return nil
			}), c.journal)
			spec := testSpec(t, 1)
			p := n.start(spec, true)
			other := testSpec(t, 1)
			other.Shard, other.Partition = 3, 1
			q := n.start(other, true)
			writable(t, p)
			writable(t, q)
			mu.Lock()
			left = 8
			mu.Unlock()
			for i := range 30 {
				for _, p := range []*Partition{p, q} {
					if r := appendBatch(t, p, textBatch(t, fmt.Sprint(i)), AcksAll); r.Err != nil || r.Offset != int64(i) {
						t.Fatalf("append %d: %+v", i, r)
					}
				}
			}
			if c.journal > 0 {
				waitEvent(t, n, EventJournalOff)
			}
			again := memNodeWith(t, mem.CrashClone(vfs.CrashOptions{}), c.journal)
			for _, spec := range []PartitionSpec{spec, other} {
				p := again.start(spec, false)
				writable(t, p)
				if got := values(t, p, 0); len(got) != 30 || got[29] != "29" {
					t.Errorf("after a power cut there are %d records", len(got))
				}
			}
			again.close()
			n.close()
		})
	}
}
