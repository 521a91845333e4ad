package kafka

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// SaslAuthenticate, versions 0 to 2. Carries a token of the mechanism that SaslHandshake
// chose. A token that fails is answered after a while, without saying what was wrong
// with it, and the connection is closed.
//
// The nonce of SCRAM has to be the very one that was sent, as in Kafka since 3.7.2: with
// librdkafka before 2.6.1, which sends a part of it twice, only PLAIN works.
//
// The session's lifetime, from version 1 on, is Options.ReauthAfter.
func (c *call) saslAuthenticate(q *kmsg.SASLAuthenticateRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	r.SASLAuthBytes = []byte{}
	s := &c.conn.session
	if s.exchange == nil {
		message := "there was no SaslHandshake that chose a mechanism"
		r.ErrorCode, r.ErrorMessage = kerr.ILLEGAL_SASL_STATE, &message
		if !s.known() {
			s.deny("SaslAuthenticate before SaslHandshake")
		}
		return r
	}
	reply, err := c.conn.token(q.SASLAuthBytes)
	if err != nil {
		var told *kerr.Error
		if errors.As(err, &told) {
			r.ErrorCode, r.ErrorMessage = told.Code, &told.Message
		}
		return r
	}
	if reply != nil {
		r.SASLAuthBytes = reply
	}
	if s.exchange == nil && !s.expires.IsZero() {
		r.SessionLifetimeMillis = time.Until(s.expires).Milliseconds()
	}
	return r
}
