package billet

import (
	"context"
	"fmt"

	"github.com/billetlog/billet/transport/kafka"
)

// SetKafkaUser makes a user of the cluster's Kafka listeners or changes its password. It
// may use all SASL mechanisms; Kafka's own tools see it as one with SCRAM credentials.
// So is the first user made: there must be one before clients can make others. The
// password is not kept, only what SCRAM needs to verify it.
func (l *Log) SetKafkaUser(ctx context.Context, name, password string) error {
	n, err := l.kafkaNode(ctx)
	if err != nil {
		return err
	}
	return l.kafkaError(kafka.SetUser(ctx, n.broker, name, password))
}

// DeleteKafkaUser deletes a user, if it is there. Its connections that stand go on, until
// Kafka.ReauthAfter.
func (l *Log) DeleteKafkaUser(ctx context.Context, name string) error {
	n, err := l.kafkaNode(ctx)
	if err != nil {
		return err
	}
	return l.kafkaError(kafka.DeleteUser(ctx, n.broker, name))
}

func (l *Log) kafkaNode(ctx context.Context) (*machineNode, error) {
	if err := l.check(ctx); err != nil {
		return nil, err
	}
	n, ok := l.node.(*machineNode)
	if !ok {
		return nil, fmt.Errorf("billet: log %s has no broker: %w", l.config.Dir, ErrClosed)
	}
	return n, nil
}

func (l *Log) kafkaError(err error) error {
	if err != nil {
		return fmt.Errorf("billet: %w", err)
	}
	return nil
}
