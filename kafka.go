package billet

import (
	"context"
	"fmt"
	"net"

	"github.com/billetlog/billet/transport/kafka"
)

// Kafka says where the node serves Kafka's protocol, so that any Kafka client is a
// client of it. The zero value is a node without a listener.
type Kafka struct {
	// Addr is the address of the listener, host:port. Port 0 takes a free one, which
	// KafkaAddr tells. Default "": no listener.
	Addr string
	// Advertise is what clients are told instead of Addr, host:port, as behind a
	// translation of addresses. Default: Addr, with the machine's name where it is all
	// addresses.
	Advertise string
	// AutoCreateTopics makes a topic when a client asks for one that is not there,
	// Kafka's auto.create.topics.enable. Default false.
	AutoCreateTopics bool
	// DefaultPartitions is how many partitions a topic gets whose maker does not say,
	// Kafka's num.partitions. Default 1.
	DefaultPartitions int
}

func (k *Kafka) validate() error {
	if k.Addr == "" {
		return nil
	}
	for name, address := range map[string]string{"Kafka.Addr": k.Addr, "Kafka.Advertise": k.Advertise} {
		if address == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return invalidField(name, address, "host:port")
		}
	}
	if k.DefaultPartitions < 0 {
		return invalidField("Kafka.DefaultPartitions", k.DefaultPartitions, "0 or more")
	}
	return nil
}

// KafkaAddr returns the address that Kafka clients are told, host:port, or "" when there
// is no listener.
func (l *Log) KafkaAddr() string {
	n, ok := l.node.(*machineNode)
	if !ok || n.kafka == nil {
		return ""
	}
	e := n.kafka.Endpoints()[0]
	return net.JoinHostPort(e.Host, fmt.Sprint(e.Port))
}

// openKafka starts the listener.
func (n *machineNode) openKafka(ctx context.Context, config *Config) (err error) {
	if config.Kafka.Addr == "" {
		return nil
	}
	n.kafka, err = kafka.Open(kafka.Options{
		Broker: n.broker, Logger: config.Logger,
		Listeners:        []kafka.Listener{{Address: config.Kafka.Addr, Advertise: config.Kafka.Advertise}},
		AutoCreateTopics: config.Kafka.AutoCreateTopics, DefaultPartitions: config.Kafka.DefaultPartitions,
	})
	if err != nil {
		return err
	}
	if err := n.broker.Announce(ctx, n.kafka.Endpoints()); err != nil {
		return err
	}
	n.kafka.Serve()
	return nil
}
