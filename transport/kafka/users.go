package kafka

import (
	"context"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Bounds of users.
const (
	userNameMax  = 512
	passwordMax  = 1024
	saltMax      = 1024
	verifyingMax = 2 // passwords that are verified at one time: each costs milliseconds
)

// Errors about users.
var (
	errUnknownUser   = errors.New("there is no such user")
	errWrongPassword = errors.New("the password is wrong")
	errUserEncoding  = errors.New("what is kept of a user is damaged, or of a newer version")
)

// users are those of the store. Its entries are by mechanism and name:
//
//	key    mechanism "/" name
//	value  version u8 (1) | iterations u32 | salt | storedKey | serverKey
//
// with u16 lengths before the three, all big endian.
type users struct {
	store     Store
	logger    *slog.Logger
	verifying *semaphore.Weighted
	cached    atomic.Pointer[userSet]
}

// userSet is what the store had at a version.
type userSet struct {
	version uint64
	all     map[userKey]credential
}

type userKey struct{ mechanism, name string }

func newUsers(store Store, logger *slog.Logger) *users {
	return &users{store: store, logger: logger, verifying: semaphore.NewWeighted(verifyingMax)}
}

// set returns what the store has.
func (u *users) set() *userSet {
	version := u.store.EntriesVersion(kindUser)
	if s := u.cached.Load(); s != nil && s.version == version {
		return s
	}
	s := &userSet{version: version, all: map[userKey]credential{}}
	for key, value := range u.store.Entries(kindUser) {
		mechanism, name, ok := strings.Cut(key, "/")
		c, err := decodeCredential(value)
		if !ok || err != nil {
			u.logger.Error("a user cannot be read and cannot prove who it is", "user", key, "err", err)
			continue
		}
		s.all[userKey{mechanism, name}] = c
	}
	u.cached.Store(s)
	return s
}

// find finds a user's credential.
func (u *users) find(name, mechanism string) (credential, bool) {
	c, ok := u.set().all[userKey{mechanism, name}]
	return c, ok
}

// verify holds a password against any credential of the user. It takes as long for users
// that there are not.
func (u *users) verify(ctx context.Context, name, password string) error {
	if len(password) > passwordMax {
		return errWrongPassword
	}
	mechanism := mechanism512
	c, ok := u.find(name, mechanism)
	if !ok {
		mechanism = mechanism256
		c, ok = u.find(name, mechanism)
	}
	if !ok {
		c = credential{iterations: scramIterations, salt: make([]byte, saltLen)}
	}
	if err := u.verifying.Acquire(ctx, 1); err != nil {
		return err
	}
	defer u.verifying.Release(1)
	salted, err := saltPassword(mechanism, password, c.salt, c.iterations)
	if err != nil {
		return err
	}
	got := credentialOf(mechanism, c.salt, salted, c.iterations)
	switch {
	case !ok:
		return fmt.Errorf("user %.64q: %w", name, errUnknownUser)
	case !hmac.Equal(got.storedKey, c.storedKey):
		return fmt.Errorf("user %.64q: %w", name, errWrongPassword)
	}
	return nil
}

func userEntry(mechanism, name string) string { return mechanism + "/" + name }

const credentialVersion = 1

func (c credential) encode() []byte {
	b := []byte{credentialVersion}
	b = binary.BigEndian.AppendUint32(b, uint32(c.iterations))
	for _, part := range [][]byte{c.salt, c.storedKey, c.serverKey} {
		b = binary.BigEndian.AppendUint16(b, uint16(len(part)))
		b = append(b, part...)
	}
	return b
}

func decodeCredential(b []byte) (c credential, err error) {
	if len(b) < 5 || b[0] != credentialVersion {
		return c, errUserEncoding
	}
	c.iterations = int(binary.BigEndian.Uint32(b[1:]))
	b = b[5:]
	for _, part := range []*[]byte{&c.salt, &c.storedKey, &c.serverKey} {
		if len(b) < 2 {
			return c, errUserEncoding
		}
		n := int(binary.BigEndian.Uint16(b))
		if len(b) < 2+n {
			return c, errUserEncoding
		}
		*part, b = b[2:2+n], b[2+n:]
	}
	if len(b) > 0 || c.iterations < 1 || c.iterations > scramIterationsMax {
		return c, errUserEncoding
	}
	return c, nil
}

// SetUser makes a user or changes its password, for all mechanisms.
func SetUser(ctx context.Context, store Store, name, password string) error {
	switch {
	case name == "" || len(name) > userNameMax:
		return fmt.Errorf("kafka: the name of a user has %d bytes: 1 to %d are possible", len(name), userNameMax)
	case password == "" || len(password) > passwordMax:
		return fmt.Errorf("kafka: the password of user %q has %d bytes: 1 to %d are possible", name, len(password), passwordMax)
	}
	entries := map[string][]byte{}
	for _, mechanism := range []string{mechanism256, mechanism512} {
		c, err := newCredential(mechanism, password)
		if err != nil {
			return fmt.Errorf("kafka: user %q: %w", name, err)
		}
		entries[userEntry(mechanism, name)] = c.encode()
	}
	if err := store.SetEntries(ctx, kindUser, entries); err != nil {
		return fmt.Errorf("kafka: user %q: %w", name, err)
	}
	return nil
}

// DeleteUser deletes a user. Connections of it that stand go on.
func DeleteUser(ctx context.Context, store Store, name string) error {
	entries := map[string][]byte{userEntry(mechanism256, name): nil, userEntry(mechanism512, name): nil}
	if err := store.SetEntries(ctx, kindUser, entries); err != nil {
		return fmt.Errorf("kafka: user %q: %w", name, err)
	}
	return nil
}
