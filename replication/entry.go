package replication

import (
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/segment"
)

// How a Raft entry maps to a frame.
//
//	dragonboat                                      segment
//	ApplicationEntry without payload                KindNoOp
//	ConfigChangeEntry                               KindConfigChange, its payload
//	EncodedEntry: one header byte, a record batch   KindData, the batch; KindVoid when it takes no effect
//
// A void entry read back carries voidMarker instead of the batch it once was: every replica finds it void as well.

// encodedHeader is dragonboat's header of an entry whose payload is neither compressed nor bound to a session.
const encodedHeader = 0

// readBackID is the client id and key of entries that are read back. Both must not be zero; nobody waits for them.
const readBackID = 1

var voidMarker = []byte{encodedHeader, 0}

// toFrame turns a Raft entry into what the log stores. Its data aliases the entry.
func toFrame(e *pb.Entry) segment.Entry {
	f := segment.Entry{Index: e.Index, Term: e.Term}
	switch {
	case e.Type == pb.ConfigChangeEntry:
		f.Kind, f.Data = segment.KindConfigChange, e.Cmd
	case e.Type == pb.EncodedEntry && len(e.Cmd) > len(voidMarker) && e.Cmd[0] == encodedHeader:
		f.Kind, f.Data = segment.KindData, e.Cmd[1:]
	case len(e.Cmd) == 0:
		f.Kind = segment.KindNoOp
	default:
		f.Kind = segment.KindVoid
	}
	return f
}

// toRaft turns a stored entry back into a Raft entry.
func toRaft(f *segment.Entry) pb.Entry {
	e := pb.Entry{Index: f.Index, Term: f.Term}
	switch f.Kind {
	case segment.KindConfigChange:
		e.Type, e.Cmd = pb.ConfigChangeEntry, f.Data
	case segment.KindData:
		cmd := make([]byte, 1+len(f.Data))
		cmd[0] = encodedHeader
		copy(cmd[1:], f.Data)
		e.Type, e.Cmd, e.ClientID, e.Key = pb.EncodedEntry, cmd, readBackID, readBackID
	case segment.KindVoid:
		e.Type, e.Cmd, e.ClientID, e.Key = pb.EncodedEntry, voidMarker, readBackID, readBackID
	}
	return e
}

func hasConfigChange(es []pb.Entry) bool {
	for i := range es {
		if es[i].Type == pb.ConfigChangeEntry {
			return true
		}
	}
	return false
}
