package replication

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// dropWatch is a logger's handler that fails a test when a message of a sound peer is dropped.
type dropWatch struct {
	slog.Handler
	t testing.TB
}

func (d dropWatch) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (d dropWatch) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "a peer's message was dropped" {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
		d.t.Error(text)
	}
	return nil
}

func soundReplicate(t testing.TB) pb.Message {
	b := textBatch(t, "x")
	b.SetBaseOffset(3)
	b.SetLeaderEpoch(5)
	return pb.Message{
		Type: pb.Replicate, From: replicaID(1, 1), To: replicaID(2, 1), ShardID: 2, Term: 5, LogIndex: 9, LogTerm: 4, Commit: 9,
		Entries: []pb.Entry{
			{Index: 10, Term: 5, Type: pb.ApplicationEntry}, // a term begins with one
			{Index: 11, Term: 5, Type: pb.EncodedEntry, ClientID: 7, Key: 8, Cmd: append([]byte{0}, b...)},
			{Index: 12, Term: 5, Type: pb.EncodedEntry, ClientID: 1, Key: 1, Cmd: voidMarker},
			{Index: 13, Term: 5, Type: pb.ConfigChangeEntry, Cmd: pb.MustMarshal(&pb.ConfigChange{Type: pb.AddNode, ReplicaID: 3, Address: "node-3"})},
		},
	}
}

func changeEntry(m *pb.Message, c pb.ConfigChange) { m.Entries[3].Cmd = pb.MustMarshal(&c) }

func TestCheckMessage(t *testing.T) {
	if m := soundReplicate(t); checkMessage("node-1", &m) != nil {
		t.Fatal(checkMessage("node-1", &m))
	}
	for name, spoil := range map[string]func(m *pb.Message){
		"no receiver":               func(m *pb.Message) { m.To = 0 },
		"no sender":                 func(m *pb.Message) { m.From = 0 },
		"no shard":                  func(m *pb.Message) { m.ShardID = 0 },
		"another node's replica":    func(m *pb.Message) { m.From = replicaID(3, 1) },
		"no term":                   func(m *pb.Message) { m.Term = 0 },
		"local type":                func(m *pb.Message) { m.Type = pb.Election },
		"unreachable":               func(m *pb.Message) { m.Type = pb.Unreachable },
		"snapshot on the wire":      func(m *pb.Message) { m.Type = pb.InstallSnapshot },
		"carries a snapshot":        func(m *pb.Message) { m.Snapshot.Index = 4; m.Snapshot.Term = 1 },
		"unknown type":              func(m *pb.Message) { m.Type = 99 },
		"entries in a heartbeat":    func(m *pb.Message) { m.Type = pb.Heartbeat },
		"proposal of a batch":       func(m *pb.Message) { m.Type = pb.Propose },
		"empty proposal":            func(m *pb.Message) { m.Type = pb.Propose; m.Entries = nil },
		"index gap":                 func(m *pb.Message) { m.Entries[1].Index = 12 },
		"gap before the first":      func(m *pb.Message) { m.LogIndex = 8 },
		"term goes back":            func(m *pb.Message) { m.Entries[1].Term = 4 },
		"term of the future":        func(m *pb.Message) { m.Entries[3].Term = 6 },
		"no-op with content":        func(m *pb.Message) { m.Entries[0].Cmd = []byte{1} },
		"no-op of a session":        func(m *pb.Message) { m.Entries[0].ClientID = 1 },
		"bad entry header":          func(m *pb.Message) { m.Entries[1].Cmd[0] = 0xff },
		"compressed entry":          func(m *pb.Message) { m.Entries[1].Cmd[0] = 2 },
		"empty entry":               func(m *pb.Message) { m.Entries[1].Cmd = nil },
		"header only":               func(m *pb.Message) { m.Entries[1].Cmd = []byte{0} },
		"client 0":                  func(m *pb.Message) { m.Entries[1].ClientID = 0 },
		"key 0":                     func(m *pb.Message) { m.Entries[1].Key = 0 },
		"session":                   func(m *pb.Message) { m.Entries[1].SeriesID = 1 },
		"batch with a wrong CRC":    func(m *pb.Message) { m.Entries[1].Cmd[40] ^= 1 },
		"bytes behind the batch":    func(m *pb.Message) { m.Entries[1].Cmd = append(m.Entries[1].Cmd, 0) },
		"batch cut":                 func(m *pb.Message) { m.Entries[1].Cmd = m.Entries[1].Cmd[:50] },
		"undecodable change":        func(m *pb.Message) { m.Entries[3].Cmd = []byte{0xff, 0xff} },
		"change of an unknown kind": func(m *pb.Message) { m.Entries[3].Cmd = pb.MustMarshal(&pb.ConfigChange{Type: 9, ReplicaID: 3}) },
		"change of replica 0":       func(m *pb.Message) { m.Entries[3].Cmd = pb.MustMarshal(&pb.ConfigChange{Type: pb.AddNode}) },
		"change to a witness": func(m *pb.Message) {
			changeEntry(m, pb.ConfigChange{Type: pb.AddWitness, ReplicaID: 3, Address: "node-3"})
		},
		"replica of another node": func(m *pb.Message) {
			changeEntry(m, pb.ConfigChange{Type: pb.AddNode, ReplicaID: 3, Address: "node-2"})
		},
		"two changes under way": func(m *pb.Message) {
			m.Entries = append(m.Entries, pb.Entry{Index: 14, Term: 5, Type: pb.ConfigChangeEntry, Cmd: m.Entries[3].Cmd})
		},
		"term begun with a batch":   func(m *pb.Message) { m.Entries = m.Entries[1:]; m.LogIndex = 10 },
		"no entry before":           func(m *pb.Message) { m.Entries = nil; m.LogIndex, m.LogTerm = 0, 0 },
		"behind an entry of term 0": func(m *pb.Message) { m.Entries = nil; m.LogTerm = 0 },
		"term too large":            func(m *pb.Message) { m.Term = maxEpoch + 1 },
		"log of the future":         func(m *pb.Message) { m.Entries = nil; m.LogTerm = 6 },
		"proposal of a change":      func(m *pb.Message) { m.Type, m.Term, m.Entries = pb.Propose, 0, m.Entries[3:] },
		"read with a term":          func(m *pb.Message) { m.Type, m.Hint, m.Entries = pb.ReadIndex, 1, nil },
		"read without a name":       func(m *pb.Message) { m.Type, m.Term, m.Entries = pb.ReadIndex, 0, nil },
		"transfer with a term":      func(m *pb.Message) { m.Type, m.Hint, m.Entries = pb.LeaderTransfer, 1, nil },
		"transfer to nobody":        func(m *pb.Message) { m.Type, m.Term, m.Entries = pb.LeaderTransfer, 0, nil },
		"metadata entry":            func(m *pb.Message) { m.Entries[0].Type = pb.MetadataEntry },
	} {
		m := soundReplicate(t)
		spoil(&m)
		if err := checkMessage("node-1", &m); !errors.Is(err, errPeerMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzPeerMessage feeds mutated messages to a running replica: none may bring the process down, park a worker, or change what is committed.
func FuzzPeerMessage(f *testing.F) {
	sound := soundReplicate(f)
	f.Add(pb.MustMarshal(&sound))
	for _, typ := range []pb.MessageType{pb.Heartbeat, pb.RequestVote, pb.RequestPreVote, pb.ReplicateResp, pb.TimeoutNow, pb.ReadIndex, pb.LeaderTransfer} {
		m := pb.Message{Type: typ, From: replicaID(1, 1), To: replicaID(2, 1), ShardID: 2, Term: 3, LogIndex: 1, LogTerm: 1}
		f.Add(pb.MustMarshal(&m))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m pb.Message
		if unmarshal(&m, data) != nil {
			return
		}
		if err := checkMessage("node-1", &m); err != nil {
			return
		}
		for i := range m.Entries {
			frame := toFrame(&m.Entries[i])
			if back := toRaft(&frame); back.Index != m.Entries[i].Index || back.Term != m.Entries[i].Term {
				t.Fatalf("entry %d of term %d comes back as %d of %d", m.Entries[i].Index, m.Entries[i].Term, back.Index, back.Term)
			}
		}
	})
}

// A heartbeat that says more is committed than the log has latches the replica instead of ending the process.
func TestHeartbeatBeyondTheLog(t *testing.T) {
	n := newTestNode(t)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	m := pb.Message{Type: pb.Heartbeat, From: replicaID(2, 1), To: p.spec.Replica, ShardID: 2, Term: 9, Commit: 1000}
	if r, err := n.host.db.admits(&m); r != nil || err != nil {
		t.Error("the message would reach dragonboat")
	}
	waitEvent(t, n, EventReplicaFailed)
	if err := p.Writable(testContext(t)); !errors.Is(err, ErrFailed) || !errors.Is(err, errLostEntries) {
		t.Errorf("the partition says %v", err)
	}
	_ = n.host.Close(testContext(t))
}
