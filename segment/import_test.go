package segment

import (
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

func TestImport(t *testing.T) {
	m := vfs.NewMem()
	source, _ := mixedLog(t, logOptions(m))
	defer func() { must(t, source.Close(false)) }()
	for through := uint64(0); through <= source.LastIndex(); through++ {
		e, err := source.Extent(through)
		must(t, err)
		there := vfs.NewMem()
		must(t, there.MkdirAll("/replica"))
		there.SyncAll()
		o := importOptions(there)
		o.Identity.Key.Replica++
		l, err := importAll(o, e, nil, 0)
		must(t, err)
		sameLogs(t, l, e.Info(), source)
		must(t, l.Verify(t.Context(), nil))
		must(t, l.Close(false))
		must(t, e.Close())
		// All was durable.
		o.FS = there.CrashClone(vfs.CrashOptions{})
		l, _ = openLog(t, o, OpenHints{DurableIndex: through})
		sameLogs(t, l, e.Info(), source)
		c, ok := l.Checkpoint()
		if !ok || c.Index != through || string(c.Payload) != "fold" {
			t.Fatalf("checkpoint %+v %v", c, ok)
		}
		// The log goes on.
		f := &feeder{tb: t, index: through + 1, term: l.LastTerm() + 1, offset: l.EndOffset()}
		mustAppend(t, l, f.noop(f.term), f.data(2, 900), f.data(1, 900), f.data(1, 100))
		must(t, l.Close(true))
		l, _ = openLog(t, o, OpenHints{DurableIndex: through + 4})
		if l.LastIndex() != through+4 {
			t.Fatalf("last index %d after appending", l.LastIndex())
		}
		must(t, l.Verify(t.Context(), nil))
		must(t, l.Close(false))
	}
}
