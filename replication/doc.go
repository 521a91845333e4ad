// Package replication makes a partition agree across nodes. It is the only package that knows dragonboat.
//
// A [Host] is one node: one dragonboat NodeHost on an in-memory file system, whose log store is this package's own over
// segment files, and one Raft group for each partition. A [Partition] is the local replica of one partition: its leader's append
// path, its state machine (a fold over record batches) and its readers. The [Controller] keeps topics as records of the
// partition __cluster_metadata and starts and stops replicas to match.
//
// What is promised: a batch whose [AppendResult] carries no error is stored by a majority of the replicas, durably where the
// partition's policy is commit, at the offset given. An error that wraps [ErrAmbiguous] means that the batch may or may not
// be there; every other error means that it is not.
//
// dragonboat ends the process when its log store, its state machine or its own files fail. Four layers keep that from the host:
// it has no files of its own; a replica whose disk fails is latched (its messages are dropped, its entries kept in memory until it is
// stopped) and never returns an error; calls race with Close behind one guard; and what still reaches dragonboat's Panicf
// parks that goroutine and is reported.
package replication
