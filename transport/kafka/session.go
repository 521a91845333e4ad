package kafka

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/billetlog/billet/internal/kerr"
)

// Who a client is.
const (
	userPrefix = "User:"
	// anonymous is a client that has not proved to be somebody.
	anonymous = userPrefix + "ANONYMOUS"
)

// errDenied marks a client that did not prove who it is. Its connection is closed after
// the answer.
var errDenied = errors.New("the client did not prove who it is")

// denyDelay is how long a client that failed waits for the answer that says so, Kafka's
// connection.failed.authentication.delay.ms (KIP-306). Nothing is held meanwhile but the
// connection and the answer.
const denyDelay = 100 * time.Millisecond

// session is what is known of a client. Only the goroutine that reads uses it.
type session struct {
	principal string
	// wanted says that SASL is asked for, proved that it was done once.
	wanted, proved bool
	// mechanism is the one that was chosen last; exchange goes on unless it is nil, and
	// without headers if that is unframed.
	mechanism string
	exchange  exchange
	unframed  bool
	// expires is when it has to be proved anew; zero: never.
	expires time.Time
	// denied is why the client is sent away.
	denied error
}

func (s *session) begin(sasl bool) { s.principal, s.wanted = anonymous, sasl }

// known says whether the client has proved who it is, if it has to.
func (s *session) known() bool { return !s.wanted || s.proved }

// mayAsk says whether it may ask for anything.
func (s *session) mayAsk(now time.Time) bool {
	return s.known() && s.exchange == nil && (s.expires.IsZero() || now.Before(s.expires))
}

// bare says whether the next frame is a token without a header.
func (s *session) bare() bool { return s.exchange != nil && s.unframed }

// deny sends the client away, for a reason that may be logged.
func (s *session) deny(why string) {
	s.exchange = nil
	s.denied = fmt.Errorf("%w: %s", errDenied, why)
}

// token takes the exchange a step further. Errors are those of a client that failed, and
// it was denied for them.
func (c *conn) token(token []byte) (reply []byte, err error) {
	s := &c.session
	result, err := s.exchange.step(c.ctx, token)
	if err != nil {
		s.deny(fmt.Sprintf("%s: %v", s.mechanism, err))
		return nil, kerr.Errorf(kerr.SASL_AUTHENTICATION_FAILED, "authentication by %s failed: the credentials are wrong", s.mechanism)
	}
	if !result.done {
		return result.reply, nil
	}
	principal := userPrefix + result.user
	if s.proved && principal != s.principal {
		s.deny(fmt.Sprintf("%s wants to go on as %s", s.principal, principal))
		return nil, kerr.Errorf(kerr.SASL_AUTHENTICATION_FAILED, "authentication failed: a connection cannot change its user")
	}
	s.principal, s.proved, s.exchange = principal, true, nil
	if after := c.server.opts.ReauthAfter; after > 0 {
		s.expires = time.Now().Add(after)
	}
	return result.reply, nil
}

// bareToken takes a token that came after SaslHandshake version 0, and answers in the
// same way. One that fails is not answered.
func (c *conn) bareToken(frame []byte) (late func() error, err error) {
	reply, err := c.token(frame)
	a := &answer{ready: make(chan struct{}), bare: true}
	if err != nil {
		return c.deny(a), nil
	}
	if !c.push(a) {
		return nil, net.ErrClosed
	}
	a.giveEncoded(net.Buffers{reply}, false, nil)
	c.write()
	return nil, nil
}

// deny is what is left to do about a client that failed, when its request is gone.
func (c *conn) deny(a *answer) func() error {
	return func() error {
		timer := time.NewTimer(denyDelay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.ctx.Done():
		}
		if !a.bare {
			<-a.ready
			c.write()
		}
		return c.session.denied
	}
}

// deniedOnly is err if that is about a client that failed.
func deniedOnly(err error) error {
	if errors.Is(err, errDenied) {
		return err
	}
	return nil
}

// distinguishedName is the subject of a certificate as Kafka writes it: RFC 2253, the
// last part first.
func distinguishedName(cert *x509.Certificate) string {
	name, err := parseName(cert.RawSubject)
	if err != nil {
		return cert.Subject.String()
	}
	return name
}
