package billet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/replication"
)

// Recovered says what RecoverPartition kept.
type Recovered struct {
	// Node is whose log was taken.
	Node int32
	// Start and End are the first offset that is kept and the one after the last.
	Start, End int64
	// Lost is how many records are known to have been committed after End, and
	// are lost. More may be: see Unreachable.
	Lost int64
	// Unreachable are nodes with a replica that did not answer. What was
	// acknowledged after End and stands on them alone is lost, too.
	Unreachable []int32
}

// RecoverPartition is for a partition that has lost the majority of its replicas
// for good and therefore takes and gives nothing. It goes on from the longest log
// that can be reached: records that this log lacks are lost, although they were
// acknowledged, and their offsets are given to others. Old replicas that come back
// are deleted. Before, make sure that the nodes that are missing are down and stay
// so: what they take meanwhile is lost.
//
// It may be called again after any error. Errors: ErrMajority when the partition
// works or will by itself; ErrUnknownTopic; ErrNotEnoughReplicas when no replica
// can be reached; ErrBusy, ErrDiskFull, ErrAmbiguous, retriable.
func (l *Log) RecoverPartition(ctx context.Context, topic string, partition int32) (Recovered, error) {
	if err := l.check(ctx); err != nil {
		return Recovered{}, err
	}
	r, err := l.cluster.RecoverPartition(ctx, topic, partition)
	if err != nil {
		return Recovered{}, fmt.Errorf("billet: recover %s/%d: %w", topic, partition, wrapSeam(err))
	}
	return Recovered{Node: r.Node, Start: r.StartOffset, End: r.EndOffset, Lost: max(r.HighWatermark-r.EndOffset, 0), Unreachable: r.Unreachable}, nil
}

// ClusterRecovery says what RecoverCluster kept.
type ClusterRecovery struct {
	// Generation is what FollowCluster needs on the other nodes that are left.
	Generation uint64
	// MetadataEnd is where the metadata ends from now on: topics, settings and
	// nodes are as this node knew them last.
	MetadataEnd int64
}

// RecoverCluster is for a cluster that has lost the majority of the nodes that
// vote on its metadata for good: see Cluster. The directory of a node that is left
// and not open is made the cluster, of which it is the only voter. All other
// nodes are shut out. Those that are left follow with FollowCluster, others with an
// empty directory. Call it for one node only, the one whose metadata is newest:
// its MetadataEnd would be highest. After an error it may be called again.
//
// Partitions that have lost their majority, too, are recovered after that, with
// RecoverPartition.
//
// Errors: ErrLocked, ErrForeignDir, ErrQuarantined or ErrCorrupt when the copy of
// the metadata is damaged; those of the file system.
func RecoverCluster(ctx context.Context, dir string, nodeID int32) (r ClusterRecovery, err error) {
	return recoverCluster(ctx, vfs.OS, dir, nodeID)
}

func recoverCluster(ctx context.Context, fs vfs.FS, dir string, nodeID int32) (r ClusterRecovery, err error) {
	err = withDir(fs, dir, func() error {
		got, err := replication.RecoverCluster(ctx, fs, dir, nodeID)
		r = ClusterRecovery{Generation: got.Generation, MetadataEnd: got.EndOffset}
		return err
	})
	if err != nil {
		return ClusterRecovery{}, fmt.Errorf("billet: recover the cluster from %s: %w", dir, wrapSeam(err))
	}
	return r, nil
}

// FollowCluster lets a node that is left, and not open, follow a cluster that was
// recovered on another one: generation is that of ClusterRecovery. Its copy of the
// metadata is deleted and its records stay. Open it then with Cluster.Join leading
// to the recovered node. Errors: ErrLocked, ErrForeignDir, ErrInvalidConfig; those of
// the file system.
func FollowCluster(dir string, nodeID int32, generation uint64) error {
	return followCluster(vfs.OS, dir, nodeID, generation)
}

func followCluster(fs vfs.FS, dir string, nodeID int32, generation uint64) error {
	err := withDir(fs, dir, func() error { return replication.FollowCluster(fs, dir, nodeID, generation) })
	if err != nil {
		return fmt.Errorf("billet: follow the recovered cluster with %s: %w", dir, wrapSeam(err))
	}
	return nil
}

// withDir runs f while it has the lock of a directory that exists.
func withDir(fs vfs.FS, dir string, f func() error) (err error) {
	if _, err := fs.Stat(dir); err != nil {
		return err
	}
	lock, err := fs.Lock(filepath.Join(dir, lockName), lockHolder())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	return f()
}
