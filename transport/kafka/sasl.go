package kafka

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"unicode/utf8"

	"github.com/xdg-go/scram"
)

// The names of SASL mechanisms.
const (
	mechanismPlain = "PLAIN"
	mechanism256   = "SCRAM-SHA-256"
	mechanism512   = "SCRAM-SHA-512"
)

// Mechanisms lists the SASL mechanisms that listeners may have.
func Mechanisms() []string { return []string{mechanismPlain, mechanism256, mechanism512} }

// exchange is the server's side of a SASL mechanism.
type exchange interface {
	step(ctx context.Context, token []byte) (stepResult, error)
}

// stepResult is what comes of a token: a reply and, at the end, who the client is.
type stepResult struct {
	reply []byte
	done  bool
	user  string
}

func (s *Server) newExchange(mechanism string) exchange {
	switch mechanism {
	case mechanism256:
		return newScramExchange(s.users, mechanism, scram.SHA256)
	case mechanism512:
		return newScramExchange(s.users, mechanism, scram.SHA512)
	}
	return plainExchange{s.users}
}

// otherMechanism is that of a client that may not change it.
type otherMechanism struct{}

func (otherMechanism) step(context.Context, []byte) (stepResult, error) {
	return stepResult{}, errors.New("it has to be the mechanism of the first time")
}

// plainExchange is PLAIN (RFC 4616): one token with the name and the password, which is
// held against what SCRAM knows of the user.
type plainExchange struct{ users *users }

func (x plainExchange) step(ctx context.Context, token []byte) (stepResult, error) {
	parts := bytes.Split(token, []byte{0})
	if len(parts) != 3 || !utf8.Valid(token) {
		return stepResult{}, errors.New("the token is not one of PLAIN")
	}
	as, name, password := string(parts[0]), string(parts[1]), string(parts[2])
	switch {
	case name == "" || password == "":
		return stepResult{}, errors.New("the token has no name or no password")
	case as != "" && as != name:
		return stepResult{}, errors.New("it wants to be another user than it is")
	}
	if err := x.users.verify(ctx, name, password); err != nil {
		return stepResult{}, err
	}
	return stepResult{reply: []byte{}, done: true, user: name}, nil
}

// scramExchange is SCRAM (RFC 5802) without channel binding, as in Kafka.
type scramExchange struct{ conversation *scram.ServerConversation }

// errMechanism is a credential that its mechanism does not take.
var errMechanism = errors.New("the mechanism cannot be used")

func newScramExchange(u *users, mechanism string, hash scram.HashGeneratorFcn) exchange {
	server, err := hash.NewServer(func(name string) (scram.StoredCredentials, error) {
		c, ok := u.find(name, mechanism)
		if !ok {
			return scram.StoredCredentials{}, fmt.Errorf("user %.64q: %w", name, errUnknownUser)
		}
		return scram.StoredCredentials{KeyFactors: scram.KeyFactors{Salt: string(c.salt), Iters: c.iterations},
			StoredKey: c.storedKey, ServerKey: c.serverKey}, nil
	})
	if err != nil {
		return failedExchange{fmt.Errorf("%w: %w", errMechanism, err)}
	}
	return &scramExchange{server.NewConversation()}
}

// failedExchange says why there is none.
type failedExchange struct{ err error }

func (x failedExchange) step(context.Context, []byte) (stepResult, error) {
	return stepResult{}, x.err
}

func (x *scramExchange) step(_ context.Context, token []byte) (stepResult, error) {
	reply, err := x.conversation.Step(string(token))
	if err != nil {
		return stepResult{}, err
	}
	name := x.conversation.Username()
	if as := x.conversation.AuthzID(); as != "" && as != name {
		return stepResult{}, errors.New("it wants to be another user than it is")
	}
	return stepResult{reply: []byte(reply), done: x.conversation.Valid(), user: name}, nil
}

// credential is what is known of a user's password for one mechanism.
type credential struct {
	iterations                 int
	salt, storedKey, serverKey []byte
}

// scramIterations is how often the hash is applied for passwords that are set here, and
// the least and most that clients may set.
const (
	scramIterations    = 4096
	scramIterationsMin = 4096
	scramIterationsMax = 16384
	saltLen            = 16
)

func scramHash(mechanism string) func() hash.Hash {
	if mechanism == mechanism512 {
		return sha512.New
	}
	return sha256.New
}

// newCredential makes the credential of a password with a salt of its own.
func newCredential(mechanism, password string) (credential, error) {
	salt := make([]byte, saltLen)
	if _, err := rand.Read(salt); err != nil {
		return credential{}, err
	}
	salted, err := saltPassword(mechanism, password, salt, scramIterations)
	if err != nil {
		return credential{}, err
	}
	return credentialOf(mechanism, salt, salted, scramIterations), nil
}

func saltPassword(mechanism, password string, salt []byte, iterations int) ([]byte, error) {
	h := scramHash(mechanism)
	return pbkdf2.Key(h, password, salt, iterations, h().Size())
}

// credentialOf derives the keys from a salted password.
func credentialOf(mechanism string, salt, salted []byte, iterations int) credential {
	sum := scramHash(mechanism)()
	sum.Write(keyed(mechanism, salted, "Client Key"))
	return credential{iterations: iterations, salt: salt, storedKey: sum.Sum(nil), serverKey: keyed(mechanism, salted, "Server Key")}
}

func keyed(mechanism string, key []byte, text string) []byte {
	mac := hmac.New(scramHash(mechanism), key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
