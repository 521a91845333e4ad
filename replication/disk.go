package replication

import (
	"fmt"
	"sync/atomic"

	"github.com/billetlog/billet/internal/vfs"
)

// disk is the brake: below the reserve nothing is produced, while reads, retention, deletes and elections go on.
type disk struct {
	fs      vfs.FS
	dir     string
	reserve int64
	left    atomic.Int64 // what may still be written before free space has to be asked for again
	braked  atomic.Bool
	free    atomic.Int64 // as last asked
	total   atomic.Int64
}

// diskStep is how many bytes are written at most before free space is asked for again.
const diskStep = 64 << 20

// admit lets n bytes be written, or says that the disk is full.
func (d *disk) admit(n int) error {
	if d.braked.Load() {
		return fmt.Errorf("%w: %d bytes free, %d are kept in reserve: free space or delete topics", ErrDiskFull, d.free.Load(), d.reserve)
	}
	if d.left.Add(-int64(n)) < 0 {
		d.look()
		if d.braked.Load() {
			return fmt.Errorf("%w: %d bytes free, %d are kept in reserve: free space or delete topics", ErrDiskFull, d.free.Load(), d.reserve)
		}
	}
	return nil
}

// look asks for free space and sets or lifts the brake. It is lifted a little above the mark that sets it.
func (d *disk) look() {
	space, err := d.fs.Free(d.dir)
	if err != nil {
		return // the write itself will tell
	}
	free := int64(min(space.Free, 1<<62))
	d.free.Store(free)
	d.total.Store(int64(min(space.Total, 1<<62)))
	room := free - d.reserve
	braked := d.braked.Load()
	switch {
	case room <= 0:
		d.left.Store(0)
		d.braked.Store(true)
	case !braked || room > d.reserve/8:
		// Half of the room at most: small writes cost more disk than their bytes, and other programs write too.
		d.left.Store(min(room/2+1, diskStep))
		d.braked.Store(false)
	}
}

// DiskFree is the free space as last looked at, and whether the brake is on.
func (h *Host) DiskFree() (bytes int64, braked bool) { return h.disk.free.Load(), h.disk.braked.Load() }

// DiskTotal is the size of the file system, 0 when it is not known.
func (h *Host) DiskTotal() int64 { return h.disk.total.Load() }
