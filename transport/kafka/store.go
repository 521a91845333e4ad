package kafka

import (
	"context"

	"github.com/billetlog/billet/internal/kerr"
)

// Store keeps small things for the whole cluster: users and access rules. Its methods
// are safe for concurrent use.
type Store interface {
	// Entries has all entries of a kind, not to be changed; EntriesVersion changes
	// with them, and is cheap.
	Entries(kind string) map[string][]byte
	EntriesVersion(kind string) uint64
	// SetEntries changes entries of a kind together, durably; a nil value deletes. When
	// it returns they are seen on this node.
	SetEntries(ctx context.Context, kind string, entries map[string][]byte) error
}

// The kinds of entries, which stay as they are: they are kept.
const (
	kindUser = "scram-user"
	kindRule = "acl"
)

// noStore has nothing and keeps nothing.
type noStore struct{}

func (noStore) Entries(string) map[string][]byte { return nil }
func (noStore) EntriesVersion(string) uint64     { return 0 }

func (noStore) SetEntries(context.Context, string, map[string][]byte) error {
	return kerr.Errorf(kerr.SECURITY_DISABLED, "the node keeps neither users nor access rules")
}
