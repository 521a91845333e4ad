package replication

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/segment"
)

// soundOffer is one that node 1 may make to learner 2-1 of shard 2.
func soundOffer() *offer {
	o := &offer{fold: newFold().encode(0)}
	o.ID, o.Shard, o.From, o.To, o.Index, o.Term = 7, 2, replicaID(1, 1), replicaID(2, 1), 50, 3
	o.Extent = segment.ExtentInfo{LastIndex: 50, LastTerm: 3, EndOffset: 10, Segments: []segment.ExtentSegment{{FirstIndex: 2, PrevTerm: 1, Bytes: 5000}}}
	data := snapshotData(1234567)
	for i, d := range [][]byte{data[:len(data)-16], data[len(data)-16:], nil} {
		o.chunks = append(o.chunks, pb.Chunk{
			ShardID: 2, ReplicaID: o.To, From: o.From, ChunkId: uint64(i), FileChunkId: uint64(i), ChunkSize: uint64(len(d)), Data: d,
			Index: 50, Term: 3, OnDiskIndex: 49, Filepath: "snapshot-0000000000000032.gbsnap", DeploymentId: deploymentID, BinVer: raftio.TransportBinVersion,
			Membership: pb.Membership{ConfigChangeId: 40, Addresses: map[uint64]string{replicaID(1, 1): "node-1"},
				NonVotings: map[uint64]string{replicaID(2, 1): "node-2"}, Removed: map[uint64]bool{replicaID(2, 9): true}},
		})
	}
	last := &o.chunks[2]
	last.ChunkCount, last.FileChunkCount = pb.LastChunkCount, pb.LastChunkCount
	return o
}

func TestOfferRoundTrip(t *testing.T) {
	o := soundOffer()
	b, err := o.encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeOffer(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.check(1, roleLearner); err != nil {
		t.Fatal(err)
	}
	if again, _ := got.encode(); !bytes.Equal(again, b) {
		t.Error("an offer is not the same after a round trip")
	}
	for i := range b {
		if _, err := decodeOffer(b[:i]); err == nil {
			if part, _ := decodeOffer(b[:i]); part.check(1, roleLearner) == nil {
				t.Errorf("an offer cut at %d of %d bytes is taken", i, len(b))
			}
		}
	}
}

// Whatever is wrong with an offer, it is refused before anything of ours or dragonboat's acts on it.
func TestHostileOffers(t *testing.T) {
	last := func(o *offer) *pb.Chunk { return &o.chunks[len(o.chunks)-1] }
	member := func(edit func(m *pb.Membership)) func(o *offer) {
		return func(o *offer) { edit(&o.chunks[1].Membership) }
	}
	for name, edit := range map[string]func(o *offer){
		"of another node":           func(o *offer) { o.From = replicaID(3, 1) },
		"to itself":                 func(o *offer) { o.To = o.From },
		"index zero":                func(o *offer) { o.Index = 0 },
		"term too large":            func(o *offer) { o.Term = maxEpoch + 1 },
		"frames of another index":   func(o *offer) { o.Extent.LastIndex++ },
		"frames of another term":    func(o *offer) { o.Extent.LastTerm-- },
		"bad fold":                  func(o *offer) { o.fold = o.fold[1:] },
		"too many segments":         func(o *offer) { o.Extent.Segments = make([]segment.ExtentSegment, offerSegmentsMax+1) },
		"no piece":                  func(o *offer) { o.chunks = nil },
		"last piece missing":        func(o *offer) { o.chunks = o.chunks[:2] },
		"piece twice":               func(o *offer) { o.chunks = slices.Insert(o.chunks, 1, o.chunks[1]) },
		"piece of another shard":    func(o *offer) { last(o).ShardID++ },
		"piece of another sender":   func(o *offer) { o.chunks[0].From++ },
		"piece for another replica": func(o *offer) { last(o).ReplicaID++ },
		"piece of another index":    func(o *offer) { last(o).Index++ },
		"piece of another term":     func(o *offer) { last(o).Term++ },
		"on disk above the index":   func(o *offer) { o.chunks[0].OnDiskIndex = 51 },
		"on disk differs":           func(o *offer) { last(o).OnDiskIndex = 3 },
		"another deployment":        func(o *offer) { o.chunks[0].DeploymentId++ },
		"another version":           func(o *offer) { last(o).BinVer++ },
		"path out of the folder":    func(o *offer) { o.chunks[0].Filepath = "../../x" },
		"path of nothing":           func(o *offer) { o.chunks[0].Filepath = ".." },
		"file info":                 func(o *offer) { o.chunks[0].HasFileInfo = true },
		"witness":                   func(o *offer) { o.chunks[0].Witness = true },
		"file size":                 func(o *offer) { last(o).FileSize = 1 },
		"chunk size":                func(o *offer) { o.chunks[0].ChunkSize++ },
		"much data": func(o *offer) {
			o.chunks[0].Data = make([]byte, offerChunkDataMax+1)
			o.chunks[0].ChunkSize = offerChunkDataMax + 1
		},
		"other data":                func(o *offer) { o.chunks[0].Data = append(o.chunks[0].Data, 0); o.chunks[0].ChunkSize++ },
		"no data":                   func(o *offer) { o.chunks[0].Data, o.chunks[0].ChunkSize = nil, 0 },
		"huge header":               func(o *offer) { o.chunks[0].Data[7] = 0xff },
		"count too early":           func(o *offer) { o.chunks[0].ChunkCount = 1 },
		"poison":                    func(o *offer) { last(o).ChunkCount = pb.PoisonChunkCount },
		"no change id":              member(func(m *pb.Membership) { m.ConfigChangeId = 0 }),
		"change id above the index": member(func(m *pb.Membership) { m.ConfigChangeId = 51 }),
		"no voters":                 member(func(m *pb.Membership) { m.Addresses = nil }),
		"witnesses":                 member(func(m *pb.Membership) { m.Witnesses = map[uint64]string{9: "node-9"} }),
		"receiver no member":        member(func(m *pb.Membership) { m.NonVotings = nil }),
		"more than a slot holds": member(func(m *pb.Membership) {
			for i := range uint64(2000) {
				m.Removed[replicaID(9, uint32(i+10))] = true
			}
		}),
		"receiver removed":          member(func(m *pb.Membership) { m.Removed[replicaID(2, 1)] = true }),
		"member at another address": member(func(m *pb.Membership) { m.Addresses[replicaID(1, 1)] = "node-2" }),
		"member zero":               member(func(m *pb.Membership) { m.Addresses[0] = "node-0" }),
		"voter and learner":         member(func(m *pb.Membership) { m.Addresses[replicaID(2, 1)] = "node-2" }),
		"too many members": member(func(m *pb.Membership) {
			for i := range int32(offerMembersMax) {
				m.Addresses[replicaID(i+10, 1)] = nodeName(i + 10)
			}
		}),
	} {
		o := soundOffer()
		edit(o)
		if err := o.check(1, roleLearner); !errors.Is(err, errOffer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := soundOffer().check(1, roleInitial); !errors.Is(err, errOffer) {
		t.Errorf("a voter made a learner: %v", err)
	}
	if err := soundOffer().check(2, roleLearner); !errors.Is(err, errOffer) {
		t.Errorf("from another node: %v", err)
	}
}

// A snapshot does not come as a message.
func TestSnapshotMessageIsDropped(t *testing.T) {
	m := pb.Message{Type: pb.InstallSnapshot, From: replicaID(1, 1), To: replicaID(2, 1), ShardID: 2, Term: 3,
		Snapshot: pb.Snapshot{Index: 5, Term: 3}}
	if err := checkMessage("node-1", &m); !errors.Is(err, errPeerMessage) {
		t.Error(err)
	}
}

// What a peer sends as an offer never ends the process, and what is taken of it is within bounds.
func FuzzOffer(f *testing.F) {
	b, err := soundOffer().encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{offerVersion})
	f.Add(append(bytes.Clone(b), 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := decodeOffer(b)
		if err != nil {
			return
		}
		if len(o.chunks) > offerChunksMax {
			t.Errorf("%d pieces", len(o.chunks))
		}
		for role := range roleLearner + 1 {
			if err := o.check(nodeOf(o.From), role); err == nil {
				if o.Index != o.Extent.LastIndex || len(o.chunks) < 2 || fmt.Sprint(o.chunks[0].Index) != fmt.Sprint(o.Index) {
					t.Errorf("taken: %+v", o.offerHead)
				}
			}
		}
	})
}

// Offers that come from who does not lead, or to who is not here, are refused; so are pulls of what is not offered.
func TestOfferRefused(t *testing.T) {
	c := newTrio(t)
	defer c.close()
	c.produce(-1, "a")
	l := c.leader(-1)
	from, to := (l+1)%3, (l+2)%3
	o := soundOffer()
	o.From, o.To = c.parts[from].spec.Replica, c.parts[to].spec.Replica
	for i := range o.chunks {
		k := &o.chunks[i]
		k.From, k.ReplicaID = o.From, o.To
		k.Membership.Addresses = map[uint64]string{o.From: nodeName(nodeOf(o.From)), o.To: nodeName(nodeOf(o.To))}
		k.Membership.NonVotings = nil
	}
	send := func(o *offer) error {
		b, err := o.encode()
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.nodes[from].host.call(testContext(t), int32(to+1), requestOffer, b)
		return err
	}
	waitHW(t, c.parts[to], 1)
	if err := send(o); err == nil || !bytes.Contains([]byte(err.Error()), []byte("not the leader")) {
		t.Errorf("an offer of a follower: %v", err)
	}
	o.Shard = 99
	if err := send(o); err == nil {
		t.Error("an offer to nobody is taken")
	}
	if n := c.nodes[to].host.parked.Load(); n != 0 || c.parts[to].r.latched.Load() {
		t.Errorf("%d workers are parked, latched: %v", n, c.parts[to].r.latched.Load())
	}
}
