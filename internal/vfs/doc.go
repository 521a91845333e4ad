// Package vfs is the only door of the storage layer to files.
//
// OS is the file system of the machine. Mem is one in memory that knows which
// bytes and which directory entries would survive a power cut; Mem.CrashClone
// makes the state after one. Inject wraps any FS and lets chosen operations
// fail, Count counts them. Mem, Inject and Count are for tests and benchmarks;
// they live here, not in test files, so that other packages can use them.
//
// # Durability
//
// A write is durable after File.SyncData returned nil. A name (created, linked,
// renamed or removed) is durable after FS.SyncDir of its directory returned nil;
// syncing a file says nothing about its name. A rename between directories needs
// a SyncDir of both. After a failed SyncData the bytes written since the last
// good one must be taken as lost, even if a later SyncData succeeds: the kernel
// may have dropped them. Write them anew or give the file up.
//
// # Duties of the caller
//
// All methods of FS and File are safe for concurrent use. The order of
// overlapping writes, and of operations on the same name, is up to the caller. No
// method keeps a buffer after it returned.
//
// # Errors
//
// Errors match the sentinels of io/fs (fs.ErrNotExist, fs.ErrExist,
// fs.ErrClosed) and the errno values of package syscall with errors.Is, in OS
// and in Mem alike. A lock held elsewhere is ErrLocked.
package vfs
