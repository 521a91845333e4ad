package kafka

import (
	"context"
	"errors"
	"log/slog"

	"github.com/billetlog/billet/internal/kerr"
)

// call is a request under way.
type call struct {
	// ctx ends with the connection and with the server.
	ctx  context.Context
	conn *conn
	// version is that of the request and its answer.
	version int16
	// client is who asks; principal is who that was found to be.
	client    Client
	principal string
}

// broker is the node that is asked.
func (c *call) broker() Broker { return c.conn.server.opts.Broker }

// code is what a client is told about an error, with a message where there is room for
// one. What was not meant for clients is logged.
func (c *call) code(err error) (int16, *string) {
	if err == nil {
		return kerr.NONE, nil
	}
	var told *kerr.Error
	if errors.As(err, &told) {
		message := told.Message
		return told.Code, &message
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		message := "the request took too long"
		return kerr.REQUEST_TIMED_OUT, &message
	}
	c.conn.logError("a request failed", slog.String("client", c.client.ID), slog.Any("err", err))
	message := "the node could not do it; its log says why"
	return kerr.UNKNOWN_SERVER_ERROR, &message
}
