package kafka

import (
	"context"
	"errors"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

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

// allowed says whether the client may do that.
func (c *call) allowed(op kmsg.ACLOperation, kind kmsg.ACLResourceType, name string) bool {
	return c.conn.server.allowed(c.principal, c.client.Host, op, kind, name)
}

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
	c.conn.server.logger.Error("a request failed", "listener", c.conn.listener.opts.Name, "client", c.client.ID, "host", c.client.Host, "err", err)
	message := "the node could not do it; its log says why"
	return kerr.UNKNOWN_SERVER_ERROR, &message
}

// answer is a response in the making: what the client gets when its turn has come.
type answer struct {
	ready chan struct{} // closed when what follows is set
	// response is encoded by the connection; encoded, when it is set, is the whole
	// response after its header and goes out as it is. Neither: the client gets none.
	response kmsg.Response
	encoded  net.Buffers
	// flexible says that the header of encoded has tags.
	flexible bool
	// release is called when encoded was written, or never will be.
	release func()
	// close ends the connection after the answer, or in its place.
	close error

	correlation int32
	done        func() // told when it is ready; nil: nobody waits so
}

func (a *answer) isReady() bool {
	select {
	case <-a.ready:
		return true
	default:
		return false
	}
}

// give answers with a response, or with nothing if that is nil. It is called once.
func (a *answer) give(response kmsg.Response) {
	a.response = response
	a.finish()
}

// giveEncoded answers with bytes.
func (a *answer) giveEncoded(b net.Buffers, flexible bool, release func()) {
	a.encoded, a.flexible, a.release = b, flexible, release
	a.finish()
}

// end closes the connection in the place of an answer.
func (a *answer) end(why error) {
	a.close = why
	a.finish()
}

func (a *answer) finish() {
	close(a.ready)
	if a.done != nil {
		a.done()
	}
}
