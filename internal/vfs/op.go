package vfs

import "fmt"

// Op is a kind of operation, as Inject and Count see it.
type Op int

// The operations. The name that goes with one is the file's as it was opened; of
// Rename and Link it is the new name.
const (
	OpCreate      Op = iota // FS.Create
	OpOpen                  // FS.Open, FS.OpenReadOnly
	OpRead                  // File.ReadAt
	OpWrite                 // File.WriteAt, File.WritevAt
	OpTruncate              // File.Truncate
	OpSync                  // File.SyncData
	OpPreallocate           // File.Preallocate
	OpSize                  // File.Size
	OpClose                 // File.Close, and release of a lock
	OpRemove                // FS.Remove, FS.RemoveAll
	OpRename                // FS.Rename
	OpLink                  // FS.Link
	OpMkdir                 // FS.MkdirAll
	OpList                  // FS.List
	OpStat                  // FS.Stat
	OpSyncDir               // FS.SyncDir
	OpLock                  // FS.Lock
	OpFree                  // FS.Free

	opCount = int(OpFree) + 1
)

var opNames = [opCount]string{
	OpCreate: "create", OpOpen: "open", OpRead: "read", OpWrite: "write",
	OpTruncate: "truncate", OpSync: "sync", OpPreallocate: "preallocate",
	OpSize: "size", OpClose: "close", OpRemove: "remove", OpRename: "rename",
	OpLink: "link", OpMkdir: "mkdir", OpList: "list", OpStat: "stat",
	OpSyncDir: "syncdir", OpLock: "lock", OpFree: "free",
}

func (op Op) String() string {
	if op < 0 || int(op) >= opCount {
		return fmt.Sprintf("op(%d)", int(op))
	}
	return opNames[op]
}

// Changes tells whether op can change what is on disk or what is durable of it.
func (op Op) Changes() bool {
	switch op {
	case OpCreate, OpWrite, OpTruncate, OpSync, OpPreallocate, OpRemove, OpRename,
		OpLink, OpMkdir, OpSyncDir, OpLock:
		return true
	}
	return false
}
