package segment

import (
	"fmt"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// BenchmarkImport imports a log of two segments from memory to disk, and again with all of it taken from the present log by links.
func BenchmarkImport(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		dir := b.TempDir()
		o := Options{FS: vfs.OS, Dir: dir + "/000001", Identity: testIdentity, Generation: 1, SegmentBytes: 64 << 20}
		source, err := Create(o, Start{FirstIndex: 1})
		must(b, err)
		f := newFeeder(b)
		mustAppend(b, source, f.noop(1))
		for bytes := 0; bytes < 128<<20; bytes += size {
			mustAppend(b, source, f.data(1, size))
		}
		must(b, source.Sync())
		e := extentOf(b, source)
		for _, reuse := range []*Log{nil, source} {
			b.Run(fmt.Sprintf("frame=%d/linked=%v", size, reuse != nil), func(b *testing.B) {
				b.SetBytes(source.Size())
				for range b.N {
					o := o
					o.Dir, o.Generation = dir+"/000002", 2
					im, err := OpenImporter(o, e.Info(), reuse, source.LastIndex())
					must(b, err)
					must(b, pull(im, e, 0))
					must(b, im.Finish(checkpointOf(e.Info())))
					b.StopTimer()
					must(b, vfs.OS.RemoveAll(o.Dir))
					b.StartTimer()
				}
			})
		}
		must(b, e.Close())
		must(b, source.Close(false))
		must(b, vfs.OS.RemoveAll(dir))
	}
}
