package replication

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
)

// When the majority of the metadata's voters is lost for good nobody can decide anything any more, and no node can be asked to: what is left is done
// on the directories of nodes that are not open.

// ClusterRecovery says what came of RecoverCluster.
type ClusterRecovery struct {
	Node int32
	// Generation is what the other nodes that are left need to follow.
	Generation uint64
	// EndOffset is where the copy of the metadata ends that counts from now on. Decisions behind it are lost.
	EndOffset int64
}

// RecoverCluster makes the metadata in the directory of one node that is left that of the whole cluster, with this node as its only voter. The node
// must not be open. Whatever other nodes have of the metadata counts no more, and none of them can reach this one, or is reached by it, until it is given
// the new generation by FollowCluster, or an empty directory. It can be called again after an error or a crash.
func RecoverCluster(ctx context.Context, fsys vfs.FS, dir string, id int32) (out ClusterRecovery, err error) {
	n, err := formedNode(fsys, dir, id)
	if err != nil {
		return out, err
	}
	// First the others are shut out: a single voter that they can reach would be one of two clusters.
	n.Generation = max(n.Generation+1, uint64(max(time.Now().UnixNano(), 0)))
	n.Recovered, n.Forming = true, nil
	if err := SaveNode(fsys, dir, n); err != nil {
		return out, err
	}
	h, err := openOffline(fsys, dir, n)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, h.Close(ctx)) }()
	replica, found, err := h.metadataReplica()
	if err == nil && !found {
		err = fmt.Errorf("%w: %s has no copy of the cluster's metadata", ErrForeignDir, dir)
	}
	if err != nil {
		return out, err
	}
	out.Node, out.Generation = id, n.Generation
	out.EndOffset, err = h.standAlone(metadataSpec(replica))
	return out, err
}

// FollowCluster lets a node that is left follow a cluster that was recovered on another one. The node must not be open. Its copy of the metadata is
// deleted; what it has of the topics stays. When it is opened, with addresses to join, it gets the metadata of the recovered cluster.
func FollowCluster(fsys vfs.FS, dir string, id int32, generation uint64) error {
	n, err := LoadNode(fsys, dir, id)
	switch {
	case err != nil:
		return err
	case n.Cluster == [16]byte{}:
		return fmt.Errorf("%w: %s belongs to no cluster", ErrForeignDir, dir)
	case generation == 0 || generation < n.Generation:
		return fmt.Errorf("%w: generation %d, the directory has %d", ErrInvalidConfig, generation, n.Generation)
	case generation == n.Generation && (n.Formed || n.Recovered):
		return fmt.Errorf("%w: %s is of that generation already: open it", ErrInvalidConfig, dir)
	}
	h := &Host{cfg: HostConfig{FS: fsys, Dir: dir, Node: n}}
	keys, err := h.replicaKeys()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, k := range keys {
		if k.Shard == metadataShard {
			if err := h.DeleteReplicaDir(k); err != nil {
				return err
			}
		}
	}
	n.Generation, n.Formed, n.Recovered, n.Forming = generation, false, false, nil
	return SaveNode(fsys, dir, n)
}

// formedNode is who a directory belongs to, if that was part of a cluster.
func formedNode(fsys vfs.FS, dir string, id int32) (NodeIdentity, error) {
	n, err := LoadNode(fsys, dir, id)
	if err == nil && !n.Formed {
		err = fmt.Errorf("%w: %s belongs to no cluster yet, or has lost its copy of the metadata", ErrForeignDir, dir)
	}
	return n, err
}

// openOffline opens a directory without anything of it running. The journal is replayed.
func openOffline(fsys vfs.FS, dir string, n NodeIdentity) (*Host, error) {
	cfg := HostConfig{FS: fsys, Dir: dir, Node: n, JournalBytes: -1, ScrubBytesPerSecond: -1}
	if info, err := fsys.Stat(filepath.Join(dir, journalName)); err == nil {
		cfg.JournalBytes = info.Size
	}
	return OpenHost(cfg)
}

// standAlone makes a replica that does not run the only member of its group, for which all that it has is committed. It returns its end.
func (h *Host) standAlone(spec PartitionSpec) (end int64, err error) {
	p := h.newPartition(spec)
	defer p.cancel()
	if err := p.open(false); err != nil {
		return 0, fmt.Errorf("opening %s: %w", p.name(), err)
	}
	defer h.db.replicas.Delete(spec.key())
	r := p.r
	defer func() { err = errors.Join(err, r.closeFiles(false)) }()
	log := r.currentLog()
	index, term := log.LastIndex(), log.LastTerm()
	if index < genesisIndex {
		return 0, fmt.Errorf("%w: %s is empty", ErrNotEnoughReplicas, p.name())
	}
	f, cp, err := foldLog(log, index)
	if err == nil {
		err = log.Sync()
	}
	if err == nil && index >= log.FirstIndex() {
		err = log.SaveCheckpoint(segment.Checkpoint{Index: index, Term: term, Offset: cp.Offset, Payload: f.encode(0)}, true)
	}
	if err != nil {
		return 0, err
	}
	if h.db.journal != nil {
		h.db.journal.Forget(spec.key())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := aloneSlot(spec.Shard, spec.Replica, h.name, index, term, r.mu.state.Term)
	s.Generation, s.Identity, s.Created = r.mu.slot.Generation, r.mu.slot.Identity, r.mu.slot.Created
	s.BootID, s.Clean, s.MarkOffset = h.bootID, true, log.EndOffset()
	if _, err := r.putImageLocked(s); err != nil {
		return 0, err
	}
	return log.EndOffset(), r.mu.slots.Sync()
}
