package replication

import (
	"errors"
	"fmt"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/internal/batch"
)

// What a peer may say. dragonboat panics on many messages that no sound peer sends, on some only after they were committed, and so on every
// replica at every start. So each message is checked, field by field, before dragonboat sees it.

var errPeerMessage = errors.New("replication: message that no sound peer sends")

// allowed are the kinds of messages that cross the wire. Local ones, proposals, snapshots (which travel otherwise) and quiescing are not among them.
var allowed = map[pb.MessageType]bool{
	pb.NoOP: true, pb.Replicate: true, pb.ReplicateResp: true, pb.RequestVote: true, pb.RequestVoteResp: true,
	pb.Heartbeat: true, pb.HeartbeatResp: true, pb.ReadIndex: true, pb.ReadIndexResp: true, pb.SnapshotReceived: true,
	pb.LeaderTransfer: true, pb.TimeoutNow: true, pb.RateLimit: true, pb.RequestPreVote: true, pb.RequestPreVoteResp: true,
}

// checkMessage says what is wrong with a message from the node named from, nil when nothing is.
func checkMessage(from string, m *pb.Message) error {
	switch {
	case !allowed[m.Type]:
		return fmt.Errorf("%w: type %d", errPeerMessage, m.Type)
	case m.To == 0 || m.From == 0 || m.ShardID == 0:
		return fmt.Errorf("%w: %s without shard or replica", errPeerMessage, m.Type)
	case nodeName(nodeOf(m.From)) != from:
		return fmt.Errorf("%w: %s says it is sent by replica %x", errPeerMessage, from, m.From)
	case !pb.IsEmptySnapshot(m.Snapshot):
		return fmt.Errorf("%w: %s with a snapshot", errPeerMessage, m.Type)
	case len(m.Entries) > 0 && m.Type != pb.Replicate:
		return fmt.Errorf("%w: %s with entries", errPeerMessage, m.Type)
	}
	if err := checkFields(m); err != nil {
		return err
	}
	return checkEntries(m)
}

// checkFields checks what depends on the kind of message. What is forwarded to a leader carries no term: dragonboat panics when it passes on one that does.
func checkFields(m *pb.Message) error {
	forwarded := m.Type == pb.ReadIndex || m.Type == pb.LeaderTransfer
	switch {
	case m.Term > maxEpoch || m.LogTerm > m.Term && !forwarded:
		return fmt.Errorf("%w: %s of term %d with a log of term %d", errPeerMessage, m.Type, m.Term, m.LogTerm)
	case forwarded && m.Term != 0:
		return fmt.Errorf("%w: %s of term %d", errPeerMessage, m.Type, m.Term)
	case m.Term == 0 && !forwarded && m.Type != pb.SnapshotReceived && m.Type != pb.RateLimit:
		return fmt.Errorf("%w: %s without a term", errPeerMessage, m.Type)
	case m.Hint == 0 && (m.Type == pb.ReadIndex || m.Type == pb.LeaderTransfer):
		return fmt.Errorf("%w: %s of nothing", errPeerMessage, m.Type)
	case m.Type == pb.Replicate && (m.LogIndex < genesisIndex || m.LogTerm < genesisTerm):
		// dragonboat takes term 0 for that of any entry behind its log's end, and would go on there.
		return fmt.Errorf("%w: entries behind index %d of term %d", errPeerMessage, m.LogIndex, m.LogTerm)
	}
	return nil
}

// checkEntries checks that entries follow each other and the place they are said to follow, and that each can be stored and applied: a term begins
// with a no-op, and a membership change follows another one only when that is committed.
func checkEntries(m *pb.Message) error {
	term, change := m.LogTerm, uint64(0)
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.Index != m.LogIndex+1+uint64(i) || e.Term < term || e.Term > m.Term || e.Term == 0 {
			return fmt.Errorf("%w: entry %d of term %d behind %d of term %d, in term %d", errPeerMessage, e.Index, e.Term, m.LogIndex+uint64(i), term, m.Term)
		}
		if e.Term != term && e.Type != pb.ApplicationEntry || change > m.Commit && e.Type == pb.ConfigChangeEntry {
			return fmt.Errorf("%w: entry %d of kind %d, where term %d follows %d and %d is committed", errPeerMessage, e.Index, e.Type, e.Term, term, m.Commit)
		}
		term = e.Term
		if e.Type == pb.ConfigChangeEntry {
			change = e.Index
		}
		if err := checkEntry(e); err != nil {
			return fmt.Errorf("entry %d: %w", e.Index, err)
		}
	}
	return nil
}

func checkEntry(e *pb.Entry) error {
	switch e.Type {
	case pb.ApplicationEntry:
		if len(e.Cmd) != 0 || e.ClientID != 0 || e.SeriesID != 0 || e.RespondedTo != 0 {
			return fmt.Errorf("%w: a no-op with content", errPeerMessage)
		}
		return nil
	case pb.ConfigChangeEntry:
		var cc pb.ConfigChange
		if err := unmarshal(&cc, e.Cmd); err != nil {
			return fmt.Errorf("%w: membership change: %w", errPeerMessage, err)
		}
		adds := cc.Type == pb.AddNode || cc.Type == pb.AddNonVoting
		if cc.ReplicaID == 0 || !adds && cc.Type != pb.RemoveNode || adds && cc.Address != nodeName(nodeOf(cc.ReplicaID)) {
			return fmt.Errorf("%w: membership change of kind %d for replica %x at %q", errPeerMessage, cc.Type, cc.ReplicaID, cc.Address)
		}
		return nil
	case pb.EncodedEntry:
		return checkBatchEntry(e)
	}
	return fmt.Errorf("%w: entry type %d", errPeerMessage, e.Type)
}

func checkBatchEntry(e *pb.Entry) error {
	if e.ClientID == 0 || e.Key == 0 || e.SeriesID != 0 || e.RespondedTo != 0 || len(e.Cmd) < len(voidMarker) || e.Cmd[0] != encodedHeader {
		return fmt.Errorf("%w: header of a batch entry", errPeerMessage)
	}
	if len(e.Cmd) == len(voidMarker) {
		return nil
	}
	b, rest, err := batch.Split(e.Cmd[1:], maxMessageBytesMax)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes behind the batch", len(rest))
	}
	if err == nil {
		err = b.CheckHeader()
	}
	if err == nil {
		err = b.CheckCRC()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errPeerMessage, err)
	}
	return nil
}

// unmarshal decodes one of dragonboat's messages. Their decoders panic on some bytes that are none.
func unmarshal(m interface{ Unmarshal([]byte) error }, b []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errUndecodable, p)
		}
	}()
	return m.Unmarshal(b)
}

var errUndecodable = errors.New("replication: not an encoded message")

// nodeOf is the node that a replica id was given to.
func nodeOf(replica uint64) int32 { return int32(uint32(replica)) }
