package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// producerIDTimeout bounds how long an id is waited for.
const producerIDTimeout = 10 * time.Second

// InitProducerId, versions 0 to 5, for idempotent producers: each gets an id of its own,
// whatever it had before (KIP-360).
//
// There are no transactions. A transactional id gets UNSUPPORTED_VERSION, which all
// clients take as final; what they would call next is not advertised either.
func (c *call) initProducerID(q *kmsg.InitProducerIDRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.InitProducerIDResponse)
	r.ProducerID, r.ProducerEpoch = -1, -1
	switch {
	case q.TransactionalID != nil && !c.allowed(kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTransactionalId, *q.TransactionalID):
		r.ErrorCode = kerr.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
	case q.TransactionalID == nil && !c.allowed(kmsg.ACLOperationIdempotentWrite, kmsg.ACLResourceTypeCluster, clusterName) &&
		!c.allowedAny(kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTopic): // KIP-679
		r.ErrorCode = kerr.CLUSTER_AUTHORIZATION_FAILED
	case q.TransactionalID != nil && *q.TransactionalID == "":
		r.ErrorCode = kerr.INVALID_REQUEST
	case q.TransactionalID != nil:
		r.ErrorCode = kerr.UNSUPPORTED_VERSION
	case q.Version >= 3 && (q.ProducerID == -1) != (q.ProducerEpoch == -1):
		r.ErrorCode = kerr.INVALID_REQUEST
	default:
		c.newProducerID(r)
	}
	return r
}

func (c *call) newProducerID(r *kmsg.InitProducerIDResponse) {
	ctx, cancel := context.WithTimeout(c.ctx, producerIDTimeout)
	defer cancel()
	id, epoch, err := c.broker().NewProducerID(ctx)
	var told *kerr.Error
	if err != nil && !errors.As(err, &told) {
		c.conn.server.logger.Warn("no producer id was given out", "client", c.client.ID, "host", c.client.Host, "err", err)
	}
	if err != nil { // the one error that producers of every age try again after
		r.ErrorCode = kerr.COORDINATOR_LOAD_IN_PROGRESS
		return
	}
	r.ProducerID, r.ProducerEpoch = id, epoch
}
