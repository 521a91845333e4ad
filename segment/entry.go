package segment

// Identity says whose log this is. It stands in every segment's header; a segment of another replica is refused.
type Identity struct {
	Cluster   [16]byte // the cluster's id
	Topic     [16]byte // the topic's id: a topic deleted and created again has another one
	Partition int32
	Key       Key
}

// Key names a replica within a node: the Raft group and the replica in it. Neither is ever reused.
type Key struct {
	Shard   uint64
	Replica uint64
}

// Kind says what a frame holds.
type Kind uint8

// The kinds of frames. The numbers are on disk: frozen.
const (
	// KindData is a record batch that took effect.
	KindData Kind = 1
	// KindNoOp is the empty entry with which a leader begins its term.
	KindNoOp Kind = 2
	// KindConfigChange is a membership change; its payload is opaque here.
	KindConfigChange Kind = 3
	// KindVoid is a proposed batch that did not take effect. It keeps its index and nothing else.
	KindVoid Kind = 4
	// KindHeader is a segment's first frame. It is no entry.
	KindHeader Kind = 5
)

// Entry is one Raft entry. Given to Append with KindData, Data is a whole record batch, which the log stores as such when it takes
// effect and as KindVoid (with no data) when not.
type Entry struct {
	Index uint64
	Term  uint64
	Kind  Kind
	Data  []byte
}

// Write is one contiguous piece of a segment (or of a slot file, see [SlotFile]) that was written and is not yet durable: what a redo
// record in the journal needs. Data aliases the caller's buffers and must stay unchanged until the write is durable.
type Write struct {
	Key        Key
	Generation uint64
	File       string // base name within the generation's folder (a segment), or within the replica's (the slot file)
	Slot       bool   // the file is the replica's slot file, outside the generation's folder
	Pos        int64
	Data       [][]byte
	Size       int // the sum of len(Data[i])
}

// Syncer makes durable all that was written to one replica's files, wherever it still may be unsynced. The journal calls it before it
// reuses the space of that replica's redo records. It may run beside appends.
type Syncer interface {
	// SyncJournaled returns nil when what was written before the call is durable
	// without the journal.
	SyncJournaled() error
}
