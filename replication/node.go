package replication

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
	"github.com/billetlog/billet/transport"
)

// NodeIdentity is who a directory belongs to.
type NodeIdentity struct {
	Cluster [16]byte // zero: the node belongs to no cluster yet
	ID      int32
	// Dir is the directory's own id: a node whose disk was replaced comes back with another one.
	Dir [16]byte
	// Opens counts how often the directory was opened. It tells the node's lives apart.
	Opens uint64
	// Forming are the nodes that form the cluster together, this one among them, until its metadata partition exists here.
	Forming []int32
	// Generation tells the cluster from what it was before its metadata was recovered without a majority. Nodes of different ones do not meet.
	Generation uint64
	Recovered  bool // this directory's metadata was recovered, and its records do not say so yet
	Formed     bool // the cluster's metadata partition exists here: if its files are missing they were lost
}

// ClusterID is the cluster's id as text.
func (n NodeIdentity) ClusterID() string { return hex.EncodeToString(n.Cluster[:]) }

// network is what the transport takes for the cluster's id: another one for each generation, so that the generations cannot reach each other.
func (n NodeIdentity) network() transport.ClusterID { return networkID(n.Cluster, n.Generation) }

func networkID(cluster [16]byte, generation uint64) transport.ClusterID {
	if generation == 0 {
		return cluster
	}
	b := binary.BigEndian.AppendUint64(cluster[:], generation)
	var id transport.ClusterID
	binary.BigEndian.PutUint64(id[:], xxhash.Sum64(append(b, 0)))
	binary.BigEndian.PutUint64(id[8:], xxhash.Sum64(append(b, 1)))
	return id
}

// The file `meta` in the node's directory: one line of JSON, then the xxhash64 of that line in hexadecimal on a line of its own.
type metaFile struct {
	Format  int     `json:"format"`
	Cluster string  `json:"cluster"`
	Node    int32   `json:"node"`
	Dir     string  `json:"dir"`
	Opens   uint64  `json:"opens"`
	Forming []int32 `json:"forming,omitempty"`
	Formed  bool    `json:"formed"`

	Generation uint64 `json:"generation,omitempty"`
	Recovered  bool   `json:"recovered,omitempty"`
}

const (
	metaName   = "meta"
	metaFormat = 1
)

// LoadNode reads the directory's identity; when there is none it makes that of a node without a cluster. A directory of another node is refused, as
// is one that holds partitions and no identity.
func LoadNode(fsys vfs.FS, dir string, id int32) (NodeIdentity, error) {
	path := filepath.Join(dir, metaName)
	b, err := vfs.ReadFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := fsys.Stat(filepath.Join(dir, partitionsDir)); err == nil {
			return NodeIdentity{}, fmt.Errorf("%w: %s holds partitions and %s is missing: restore it from a backup", ErrForeignDir, dir, path)
		}
		n := NodeIdentity{ID: id}
		return n, drawID(&n.Dir)
	}
	if err != nil {
		return NodeIdentity{}, fmt.Errorf("replication: %w", err)
	}
	n, err := decodeMeta(b)
	if errors.Is(err, errMeta) {
		return NodeIdentity{}, &segment.CorruptionError{File: path, Offset: -1, Reason: err.Error()}
	}
	if err != nil {
		return NodeIdentity{}, fmt.Errorf("replication: %s: %w", path, err)
	}
	if n.ID != id {
		return NodeIdentity{}, fmt.Errorf("%w: %s belongs to node %d, this is node %d: use its own directory or set NodeID", ErrForeignDir, dir, n.ID, id)
	}
	return n, nil
}

// drawID draws a random id.
func drawID(id *[16]byte) error {
	if _, err := rand.Read(id[:]); err != nil {
		return fmt.Errorf("replication: drawing an id: %w", err)
	}
	return nil
}

// SaveNode writes the directory's identity, durably and in one step.
func SaveNode(fsys vfs.FS, dir string, n NodeIdentity) error {
	if err := vfs.WriteFileAtomic(fsys, filepath.Join(dir, metaName), encodeMeta(n)); err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	return nil
}

func encodeMeta(n NodeIdentity) []byte {
	line, _ := json.Marshal(metaFile{ // plain fields always encode
		Format: metaFormat, Cluster: n.ClusterID(), Node: n.ID, Dir: hex.EncodeToString(n.Dir[:]), Opens: n.Opens, Forming: n.Forming, Formed: n.Formed,
		Generation: n.Generation, Recovered: n.Recovered,
	})
	return fmt.Appendf(nil, "%s\n%016x\n", line, xxhash.Sum64(line))
}

var errMeta = errors.New("the node's identity cannot be read")

func decodeMeta(b []byte) (NodeIdentity, error) {
	const tail = 18 // newline, 16 digits, newline
	if len(b) < tail {
		return NodeIdentity{}, fmt.Errorf("%d bytes: %w", len(b), errMeta)
	}
	line, sum := b[:len(b)-tail], b[len(b)-tail:]
	if string(sum) != fmt.Sprintf("\n%016x\n", xxhash.Sum64(line)) {
		return NodeIdentity{}, fmt.Errorf("checksum does not match: %w", errMeta)
	}
	var m metaFile
	if err := json.Unmarshal(line, &m); err != nil {
		return NodeIdentity{}, fmt.Errorf("%w: %w", errMeta, err)
	}
	if m.Format != metaFormat {
		return NodeIdentity{}, fmt.Errorf("format %d, this version knows %d: use a newer one", m.Format, metaFormat)
	}
	n := NodeIdentity{ID: m.Node, Opens: m.Opens, Forming: m.Forming, Formed: m.Formed, Generation: m.Generation, Recovered: m.Recovered}
	if err := decodeID(&n.Cluster, m.Cluster); err != nil {
		return NodeIdentity{}, fmt.Errorf("cluster id %q: %w", m.Cluster, errMeta)
	}
	if err := decodeID(&n.Dir, m.Dir); err != nil {
		return NodeIdentity{}, fmt.Errorf("directory id %q: %w", m.Dir, errMeta)
	}
	return n, nil
}

// decodeID reads an id of 32 hexadecimal digits.
func decodeID(id *[16]byte, text string) error {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(id) {
		return fmt.Errorf("replication: %q is not an id of 32 hexadecimal digits", text)
	}
	copy(id[:], b)
	return nil
}
