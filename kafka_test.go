package billet

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A client finds out what the listener serves.
func TestKafkaListener(t *testing.T) {
	log, err := Open(Config{Dir: t.TempDir(), Kafka: Kafka{Addr: "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}()
	client, err := kgo.NewClient(kgo.SeedBrokers(log.KafkaAddr()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	answer, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.ApiKeys) == 0 {
		t.Error("nothing is served")
	}
}

// refused is a connection that was refused, as if nobody had answered.
type refused struct{ error }

func (refused) Timeout() bool   { return true }
func (r refused) Unwrap() error { return r.error }

// dialAgain connects clients that are members of groups. Where two nodes refuse in turn,
// franz-go gives up its place in a group at once, and where they do not answer it goes on.
func dialAgain(ctx context.Context, network, address string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, network, address)
	if op := (*net.OpError)(nil); errors.As(err, &op) && errors.Is(err, syscall.ECONNREFUSED) {
		op.Err = refused{op.Err}
	}
	return nc, err
}
