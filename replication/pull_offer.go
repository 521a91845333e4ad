package replication

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/segment"
)

// offer is what a leader's node says it has for a replica. All of it comes from another node and is checked before it is used.
type offer struct {
	offerHead
	fold   []byte     // the state machine's state at the extent's end
	chunks []pb.Chunk // Raft's own pieces, in order
}

// offerHead is the part of an offer that is in JSON. Field names are frozen: they are on the wire.
type offerHead struct {
	ID     uint64             `json:"id"` // given by the sender, names it in pulls
	Shard  uint64             `json:"shard"`
	From   uint64             `json:"from"` // replica
	To     uint64             `json:"to"`   // replica
	Index  uint64             `json:"index"`
	Term   uint64             `json:"term"`
	Extent segment.ExtentInfo `json:"extent"`
}

// Bounds of an offer. Two chunks carry what dragonboat puts around a state machine's data, which is none.
const (
	offerVersion       = 1
	offerHeadMax       = 8 << 20
	offerFoldMax       = 8 << 20
	offerChunkDataMax  = 4 << 10
	offerChunkMax      = 16 << 10
	offerChunksMax     = 4
	offerMembersMax    = 64
	offerSegmentsMax   = 1 << 16
	snapshotHeaderSize = 1024
)

var errOffer = errors.New("replication: offer that no sound peer makes")

// encode writes version (1), then the head, the fold and each chunk with its length (4) before it.
func (o *offer) encode() ([]byte, error) {
	head, err := json.Marshal(&o.offerHead)
	if err != nil {
		return nil, fmt.Errorf("replication: encoding an offer: %w", err)
	}
	b := make([]byte, 0, 16+len(head)+len(o.fold)+len(o.chunks)*offerChunkDataMax)
	b = append(b, offerVersion)
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(head))), head...)
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(o.fold))), o.fold...)
	for i := range o.chunks {
		c, err := o.chunks[i].Marshal()
		if err != nil {
			return nil, fmt.Errorf("replication: encoding an offer: %w", err)
		}
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(c))), c...)
	}
	return b, nil
}

func decodeOffer(b []byte) (*offer, error) {
	if len(b) == 0 || b[0] != offerVersion {
		return nil, fmt.Errorf("%w: unknown version", errOffer)
	}
	head, b, err := cutBytes(b[1:], offerHeadMax)
	if err != nil {
		return nil, err
	}
	o := &offer{}
	if err := json.Unmarshal(head, &o.offerHead); err != nil {
		return nil, fmt.Errorf("%w: %w", errOffer, err)
	}
	if o.fold, b, err = cutBytes(b, offerFoldMax); err != nil {
		return nil, err
	}
	for len(b) > 0 {
		var data []byte
		if data, b, err = cutBytes(b, offerChunkMax); err != nil {
			return nil, err
		}
		var c pb.Chunk
		if len(o.chunks) == offerChunksMax {
			return nil, fmt.Errorf("%w: more than %d pieces", errOffer, offerChunksMax)
		}
		if err := unmarshal(&c, data); err != nil {
			return nil, fmt.Errorf("%w: %w", errOffer, err)
		}
		o.chunks = append(o.chunks, c)
	}
	return o, nil
}

// cutBytes takes bytes with their length before them off b.
func cutBytes(b []byte, most int) (part, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, fmt.Errorf("%w: cut short", errOffer)
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if b = b[4:]; n > uint64(most) || n > uint64(len(b)) {
		return nil, nil, fmt.Errorf("%w: a part of %d bytes, at most %d are allowed and %d are there", errOffer, n, most, len(b))
	}
	return b[:n], b[n:], nil
}

// check says what is wrong with an offer from a node to a replica that came into its group as role says.
func (o *offer) check(from int32, role uint8) error {
	switch {
	case nodeOf(o.From) != from || o.From == o.To:
		return fmt.Errorf("%w: node %d offers for replica %x", errOffer, from, o.From)
	case o.Index == 0 || o.Term == 0 || o.Term > maxEpoch:
		return fmt.Errorf("%w: index %d of term %d", errOffer, o.Index, o.Term)
	case o.Extent.LastIndex != o.Index || o.Extent.LastTerm != o.Term:
		return fmt.Errorf("%w: frames through index %d of term %d, a snapshot of index %d and term %d", errOffer,
			o.Extent.LastIndex, o.Extent.LastTerm, o.Index, o.Term)
	case len(o.Extent.Segments) > offerSegmentsMax:
		return fmt.Errorf("%w: %d segments", errOffer, len(o.Extent.Segments))
	}
	if _, _, err := decodeFold(o.fold); err != nil {
		return fmt.Errorf("%w: %w", errOffer, err)
	}
	return o.checkChunks(role)
}

// checkChunks checks Raft's pieces. dragonboat panics on some that are not as they should be, on others only when it applies them.
func (o *offer) checkChunks(role uint8) error {
	if len(o.chunks) < 2 {
		return fmt.Errorf("%w: %d pieces", errOffer, len(o.chunks))
	}
	for i := range o.chunks {
		c := &o.chunks[i]
		count := uint64(0)
		if i == len(o.chunks)-1 {
			count = pb.LastChunkCount
		}
		switch {
		case c.ShardID != o.Shard || c.From != o.From || c.ReplicaID != o.To || c.Index != o.Index || c.Term != o.Term:
			return fmt.Errorf("%w: piece %d is of another snapshot", errOffer, i)
		case c.OnDiskIndex > c.Index || c.OnDiskIndex != o.chunks[0].OnDiskIndex:
			return fmt.Errorf("%w: piece %d says that index %d is on disk", errOffer, i, c.OnDiskIndex)
		case c.DeploymentId != deploymentID || c.BinVer != raftio.TransportBinVersion:
			return fmt.Errorf("%w: piece %d is of another deployment or version", errOffer, i)
		case c.ChunkId != uint64(i) || c.FileChunkId != uint64(i) || c.ChunkCount != count || c.FileChunkCount != count:
			return fmt.Errorf("%w: piece %d says it is %d of %d", errOffer, i, c.ChunkId, c.ChunkCount)
		case c.Filepath != fmt.Sprintf("snapshot-%016X.gbsnap", c.Index) || c.FileSize != 0 || c.HasFileInfo || c.Witness:
			return fmt.Errorf("%w: piece %d is of another file", errOffer, i)
		case len(c.Data) > offerChunkDataMax || c.ChunkSize != uint64(len(c.Data)):
			return fmt.Errorf("%w: piece %d has %d bytes and says %d", errOffer, i, len(c.Data), c.ChunkSize)
		}
		if err := o.checkMembers(&c.Membership, role); err != nil {
			return err
		}
	}
	return checkSnapshotData(o.chunks)
}

func (o *offer) checkMembers(m *pb.Membership, role uint8) error {
	if m.ConfigChangeId == 0 || m.ConfigChangeId > o.Index || len(m.Addresses) == 0 || len(m.Witnesses) != 0 ||
		len(m.Addresses)+len(m.NonVotings) > offerMembersMax || m.Size() > recordBytesMax {
		return fmt.Errorf("%w: membership %+v", errOffer, m)
	}
	for _, list := range []map[uint64]string{m.Addresses, m.NonVotings} {
		for id, name := range list {
			if id == 0 || name != nodeName(nodeOf(id)) || m.Removed[id] {
				return fmt.Errorf("%w: member %x at %.40q", errOffer, id, name)
			}
		}
	}
	for id := range m.NonVotings {
		if _, votes := m.Addresses[id]; votes {
			return fmt.Errorf("%w: member %x votes and does not", errOffer, id)
		}
	}
	_, votes := m.Addresses[o.To]
	_, learns := m.NonVotings[o.To]
	if !votes && !learns || learns && role != roleLearner {
		return fmt.Errorf("%w: replica %x, which came with role %d, votes: %v, learns: %v", errOffer, o.To, role, votes, learns)
	}
	return nil
}

// snapshotPayload is what the state machine writes into a snapshot. dragonboat takes a snapshot without any for one whose data was deleted.
const snapshotPayload = "b"

// checkSnapshotData checks that the pieces hold what dragonboat makes of snapshotPayload: a header, of which only the time may differ, one block with
// no client sessions and the payload, and the end of the file. It panics on some bytes that are not as they should be.
func checkSnapshotData(chunks []pb.Chunk) error {
	var data []byte
	for i := range chunks {
		data = append(data, chunks[i].Data...)
	}
	if len(data) < snapshotHeaderSize {
		return fmt.Errorf("%w: a snapshot file of %d bytes", errOffer, len(data))
	}
	var h pb.SnapshotHeader
	n := binary.LittleEndian.Uint64(data)
	if n > snapshotHeaderSize-12 {
		return fmt.Errorf("%w: a snapshot file with a header of %d bytes", errOffer, n)
	}
	if err := unmarshal(&h, data[8:8+n]); err != nil {
		return fmt.Errorf("%w: %w", errOffer, err)
	}
	if want := snapshotData(h.UnreliableTime); !bytes.Equal(data, want) {
		return fmt.Errorf("%w: a snapshot file of %d bytes that are not what a state machine of ours writes", errOffer, len(data))
	}
	return nil
}

// snapshotData is dragonboat's file format, version 2, around snapshotPayload.
func snapshotData(at uint64) []byte {
	const maxSessions, endMagic = 4096, 0x9f81bafaf1cb5b3f
	head := pb.MustMarshal(&pb.SnapshotHeader{UnreliableTime: at, PayloadChecksum: make([]byte, 4), ChecksumType: pb.CRC32IEEE, Version: 2})
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	b = append(b, head...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(head))
	b = append(b, make([]byte, snapshotHeaderSize-len(b))...)
	block := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, maxSessions), 0)
	block = append(block, snapshotPayload...)
	b = append(b, block...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(block))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(block)+4))
	return binary.LittleEndian.AppendUint64(b, endMagic)
}
