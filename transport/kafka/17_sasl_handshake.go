package kafka

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// SaslHandshake, versions 0 and 1. The client chooses a mechanism. After version 1 its
// tokens come in SaslAuthenticate, after version 0 each by itself with only its length
// before it (KIP-43, KIP-152).
//
// A mechanism that the listener does not have is answered with those that it has, and
// the connection is closed. A client that has proved who it is may do so again only
// where that is asked of it (KIP-368), by the same mechanism.
func (c *call) saslHandshake(q *kmsg.SASLHandshakeRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.SASLHandshakeResponse)
	s, offered := &c.conn.session, c.conn.listener.opts.SASL
	switch {
	case !s.wanted || s.proved && s.expires.IsZero():
		r.ErrorCode = kerr.ILLEGAL_SASL_STATE
		return r
	case s.exchange != nil:
		r.ErrorCode = kerr.ILLEGAL_SASL_STATE
		s.deny("SaslHandshake in the middle of an exchange")
		return r
	}
	r.SupportedMechanisms = slices.Clone(offered)
	switch {
	case !slices.Contains(offered, q.Mechanism):
		r.ErrorCode = kerr.UNSUPPORTED_SASL_MECHANISM
		s.deny(fmt.Sprintf("the mechanism %.64q, and the listener has %v", q.Mechanism, offered))
	case s.proved && s.mechanism != q.Mechanism:
		s.exchange, s.unframed = otherMechanism{}, q.Version == 0
	default:
		s.mechanism, s.unframed = q.Mechanism, q.Version == 0
		s.exchange = c.conn.server.newExchange(q.Mechanism)
	}
	return r
}
