package replication

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
)

// NodeIdentity is who a directory belongs to.
type NodeIdentity struct {
	Cluster [16]byte
	ID      int32
	Formed  bool // the cluster's metadata partition exists here: if its files are missing they were lost
}

// ClusterID is the cluster's id as text.
func (n NodeIdentity) ClusterID() string { return hex.EncodeToString(n.Cluster[:]) }

// The file `meta` in the node's directory: one line of JSON, then the xxhash64 of that line in hexadecimal on a line of its own.
type metaFile struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	Node    int32  `json:"node"`
	Formed  bool   `json:"formed"`
}

const (
	metaName   = "meta"
	metaFormat = 1
)

// LoadNode reads the directory's identity; when there is none it makes a new cluster's. A directory of another node is refused, as is
// one that holds partitions and no identity.
func LoadNode(fsys vfs.FS, dir string, id int32) (NodeIdentity, error) {
	path := filepath.Join(dir, metaName)
	b, err := vfs.ReadFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := fsys.Stat(filepath.Join(dir, partitionsDir)); err == nil {
			return NodeIdentity{}, fmt.Errorf("%w: %s holds partitions and %s is missing: restore it from a backup", ErrForeignDir, dir, path)
		}
		n := NodeIdentity{ID: id}
		if _, err := rand.Read(n.Cluster[:]); err != nil {
			return NodeIdentity{}, fmt.Errorf("replication: making a cluster id: %w", err)
		}
		return n, SaveNode(fsys, dir, n)
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

// SaveNode writes the directory's identity, durably and in one step.
func SaveNode(fsys vfs.FS, dir string, n NodeIdentity) error {
	if err := vfs.WriteFileAtomic(fsys, filepath.Join(dir, metaName), encodeMeta(n)); err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	return nil
}

func encodeMeta(n NodeIdentity) []byte {
	line, _ := json.Marshal(metaFile{metaFormat, n.ClusterID(), n.ID, n.Formed}) // plain fields always encode
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
	n := NodeIdentity{ID: m.Node, Formed: m.Formed}
	if c, err := hex.DecodeString(m.Cluster); err != nil || len(c) != len(n.Cluster) || copy(n.Cluster[:], c) != len(c) {
		return NodeIdentity{}, fmt.Errorf("cluster id %q: %w", m.Cluster, errMeta)
	}
	return n, nil
}
