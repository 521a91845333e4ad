package differ

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// answerTimeout is more than any answer may take.
const answerTimeout = 20 * time.Second

// conn is a connection to a broker.
type conn struct {
	net.Conn
	correlation int32
	patience    time.Duration // how long an answer may take
}

func dial(address string) (*conn, error) {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, patience: answerTimeout}, nil
}

func (c *conn) close() { _ = c.Close() }

// ask sends a request and returns its answer.
func (c *conn) ask(q kmsg.Request, version int16) (kmsg.Response, error) {
	if err := c.sendRequest(q, version); err != nil {
		return nil, err
	}
	return c.receive(q)
}

// sendRequest sends without waiting.
func (c *conn) sendRequest(q kmsg.Request, version int16) error {
	q.SetVersion(version)
	c.correlation++
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("differ")).AppendRequest(nil, q, c.correlation)
	_, err := c.Write(frame)
	return err
}

// receive returns the answer to a request.
func (c *conn) receive(q kmsg.Request) (kmsg.Response, error) {
	body, err := c.readFrame()
	if err != nil {
		return nil, err
	}
	return decode(q, c.correlation, body)
}

// readFrame reads an answer without its length.
func (c *conn) readFrame() ([]byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.patience)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	n := int32(binary.BigEndian.Uint32(size[:]))
	if n < 0 || n > 200<<20 {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(c, body)
	return body, err
}

// decode reads an answer with its header.
func decode(q kmsg.Request, correlation int32, frame []byte) (kmsg.Response, error) {
	if len(frame) < 4 {
		return nil, fmt.Errorf("an answer of %d bytes", len(frame))
	}
	if got := int32(binary.BigEndian.Uint32(frame)); got != correlation {
		return nil, fmt.Errorf("the answer to request %d where that to %d is due", got, correlation)
	}
	body := frame[4:]
	response := q.ResponseKind()
	if response.IsFlexible() && response.Key() != kmsg.ApiVersions.Int16() {
		if len(body) == 0 || body[0] != 0 {
			return nil, errors.New("the answer's header has tags")
		}
		body = body[1:]
	}
	if err := response.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%T: %w", response, err)
	}
	if again := response.AppendTo(nil); !bytes.Equal(again, body) {
		return response, fmt.Errorf("%T has %d bytes, of which %d are understood", response, len(body), len(again))
	}
	return response, nil
}

// lost tells an error that is about the connection: closed says that the broker
// ended it.
func lost(err error) (text string) {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, new(*net.OpError)):
		return "closed"
	}
	return "error: " + err.Error()
}
