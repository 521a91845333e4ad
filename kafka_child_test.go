package billet

import (
	"context"
	"fmt"
	"io"
	"os"
)

// childKafka is a node with a listener.
func childKafka(dir, _ string) {
	l, err := Open(Config{Dir: dir, Kafka: Kafka{Addr: "127.0.0.1:0", ConnectionsMax: 20_000, ConnectionsPerHostMax: 20_000}})
	if err != nil {
		childFail("open", err)
	}
	if err := l.CreateTopic(context.Background(), Topic{Name: "t", Partitions: 4, RetentionBytes: 256 << 20}); err != nil {
		childFail("create", err)
	}
	fmt.Println(l.KafkaAddr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := l.Close(); err != nil {
		childFail("close", err)
	}
}
