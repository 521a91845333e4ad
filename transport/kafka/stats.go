package kafka

import (
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// listenerStats counts what happens at a listener.
type listenerStats struct {
	open              atomic.Int64
	accepted, refused atomic.Uint64
	received, sent    atomic.Uint64
	closed            [closeCauses]atomic.Uint64
}

// closeCause is why a connection is over.
type closeCause int

const (
	closedClient closeCause = iota
	closedIdle
	closedSlow
	closedProtocol
	closedDenied
	closedMemory
	closedFailed
	closedServer
	closeCauses
)

// errShed is the end of a client that holds memory which others wait for.
var errShed = errors.New("others wait for the memory that it holds")

// causeOf tells what ended a connection.
func (c *conn) causeOf(err error) closeCause {
	var op *net.OpError
	switch {
	case c.server.ctx.Err() != nil:
		return closedServer
	case errors.Is(err, errShed):
		return closedMemory
	case errors.Is(err, errDenied):
		return closedDenied
	case errors.Is(err, errBad):
		return closedProtocol
	case errors.Is(err, os.ErrDeadlineExceeded) && errors.As(err, &op) && strings.HasPrefix(op.Op, "write"): // or writev
		return closedSlow
	case errors.Is(err, os.ErrDeadlineExceeded):
		return closedIdle
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errGone), errors.Is(err, net.ErrClosed), errors.As(err, &op):
		return closedClient
	}
	return closedFailed
}

// requestTimes are the bounds by which requests are counted.
var requestTimes = [...]time.Duration{
	500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// codesMax is how many error codes are told apart, from -1 on; what is not among them
// counts as -1.
const codesMax = 160

// apiStats counts requests of one kind.
type apiStats struct {
	count atomic.Uint64
	nanos atomic.Int64
	times [len(requestTimes) + 1]atomic.Uint64
	codes [codesMax]atomic.Uint64
	plan  *codePlan
}

// answered counts a request, and what its response says of errors.
func (s *apiStats) answered(took time.Duration, response kmsg.Response) {
	s.count.Add(1)
	s.nanos.Add(int64(took))
	s.times[sort.Search(len(requestTimes), func(i int) bool { return took <= requestTimes[i] })].Add(1)
	if response != nil && s.plan != nil {
		s.plan.count(reflect.ValueOf(response).Elem(), s)
	}
}

// failed counts an error code.
func (s *apiStats) failed(code int16) {
	switch {
	case s == nil, code == kerr.NONE:
		return
	case code < kerr.UNKNOWN_SERVER_ERROR || int(code) >= codesMax-1:
		code = kerr.UNKNOWN_SERVER_ERROR
	}
	s.codes[code+1].Add(1)
}

// codePlan says where the error codes of a kind of response are.
type codePlan struct {
	codes []int // fields
	lists []codeList
}

type codeList struct {
	field int
	of    *codePlan
}

// planCodes looks through a kind of response. Nil: it has no error codes.
func planCodes(t reflect.Type) *codePlan {
	p := &codePlan{}
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case f.Name == "ErrorCode" && f.Type.Kind() == reflect.Int16:
			p.codes = append(p.codes, i)
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
			if of := planCodes(f.Type.Elem()); of != nil {
				p.lists = append(p.lists, codeList{i, of})
			}
		}
	}
	if len(p.codes)+len(p.lists) == 0 {
		return nil
	}
	return p
}

func (p *codePlan) count(v reflect.Value, s *apiStats) {
	for _, i := range p.codes {
		s.failed(int16(v.Field(i).Int()))
	}
	for _, l := range p.lists {
		list := v.Field(l.field)
		for i := range list.Len() {
			l.of.count(list.Index(i), s)
		}
	}
}
