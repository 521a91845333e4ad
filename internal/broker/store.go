package broker

import (
	"context"

	"github.com/billetlog/billet/replication"
)

// Entries has all small things of a kind that the metadata keeps.
func (b *Broker) Entries(kind string) map[string][]byte { return b.controller.Entries(kind) }

// EntriesVersion changes with the entries of a kind.
func (b *Broker) EntriesVersion(kind string) uint64 { return b.controller.EntriesVersion(kind) }

// SetEntries changes entries of a kind together.
func (b *Broker) SetEntries(ctx context.Context, kind string, entries map[string][]byte) error {
	list := make([]replication.Entry, 0, len(entries))
	for key, value := range entries {
		list = append(list, replication.Entry{Kind: kind, Key: key, Value: value})
	}
	return wireError(b.controller.SetEntries(ctx, list))
}
