package replication

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// A partition whose files are being opened is on no list, since whoever finds it there looks into them, and yet its shard is taken.
func TestOpeningPartitionIsNotListed(t *testing.T) {
	g := &gate{}
	n := memNodeWith(t, vfs.Inject(vfs.NewMem(), g.fault), 0)
	held, open := g.shut(func(op vfs.Op, name string) bool { return op == vfs.OpCreate && strings.HasSuffix(name, ".log") })
	done := make(chan error, 1)
	go func() {
		_, err := n.host.StartPartition(testSpec(t, 1), true)
		done <- err
	}()
	<-held
	if list := n.host.Partitions(); len(list) != 0 || n.host.partitionOf(2) != nil {
		t.Errorf("listed while it is opened: %v", list)
	}
	if n.host.claimed(2) == nil {
		t.Error("its shard is free")
	}
	if _, err := n.host.StartPartition(testSpec(t, 1), true); err == nil {
		t.Error("started twice")
	}
	open()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if list := n.host.Partitions(); len(list) != 1 {
		t.Errorf("listed are %v", list)
	}
	n.close()
}

// What is opened while the host closes does not begin to run, and leaves nothing open.
func TestOpeningPartitionWhileHostCloses(t *testing.T) {
	g := &gate{}
	n := memNodeWith(t, vfs.Inject(vfs.NewMem(), g.fault), 0)
	held, open := g.shut(func(op vfs.Op, name string) bool { return op == vfs.OpCreate && strings.HasSuffix(name, ".log") })
	done, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := n.host.StartPartition(testSpec(t, 1), true)
		done <- err
	}()
	<-held
	go func() { closed <- n.host.Close(context.Background()) }()
	<-n.host.ctx.Done()
	open()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("started on a host that closes: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if n.host.claimed(2) != nil || len(n.host.Partitions()) != 0 {
		t.Error("the shard is taken still")
	}
}
