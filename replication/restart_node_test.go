package replication

import (
	"fmt"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// A node that is killed and started again, while the others go on, is back at once with everything.
func TestNodeRestarts(t *testing.T) {
	t.Parallel() // it waits, mostly
	n := newMemberNet(t)
	fs := []*vfs.Mem{vfs.NewMem(), vfs.NewMem(), vfs.NewMem()}
	all := n.trioOf(3, fs...)
	var want []string
	for round := range 6 {
		i := round % 3
		want = append(want, fmt.Sprint("v", round))
		produceTo(t, all, 0, want[round])
		clone := fs[i].CrashClone(vfs.CrashOptions{})
		n.Crash(nodeName(int32(i + 1)))
		all[i].close()
		fs[i], all[i] = clone, nil
		all[i] = n.open(n.config(int32(i+1), clone, joining(1, 2, 3)))
		all[i].until("the topic", func(c *Controller) bool { return len(c.mu.partitions) == 3 })
		all[i].holds(0, want...)
	}
	for _, m := range all {
		m.close()
	}
}
