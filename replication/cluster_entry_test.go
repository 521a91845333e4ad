package replication

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

func (k *testCluster) set(entries ...Entry) {
	k.t.Helper()
	if err := k.c.SetEntries(testContext(k.t), entries); err != nil {
		k.t.Fatal(err)
	}
}

// Entries are there at once and after a restart; what was handed out stays as it was.
func TestEntries(t *testing.T) {
	k := openCluster(t, vfs.NewMem())
	defer func() { k.close() }()
	if k.c.Entries("user") != nil || k.c.EntriesVersion("user") != 0 {
		t.Error("entries before there are any")
	}
	odd := "\xff/\x00é"
	k.set(Entry{"user", "a", []byte("1")}, Entry{"user", odd, []byte{}}, Entry{"acl", "a", []byte("x")})
	before, version := k.c.Entries("user"), k.c.EntriesVersion("user")
	k.set(Entry{"user", "a", []byte("2")}, Entry{"user", "b", bytes.Repeat([]byte{0xfe}, EntryValueMax)}, Entry{"acl", "a", nil}, Entry{"acl", "none", nil})
	if len(before) != 2 || string(before["a"]) != "1" {
		t.Errorf("what was handed out changed: %v", before)
	}
	if k.c.EntriesVersion("user") == version {
		t.Error("the version is the same")
	}
	check := func() {
		t.Helper()
		users := k.c.Entries("user")
		if v, ok := users[odd]; !ok || v == nil || len(v) != 0 || string(users["a"]) != "2" || len(users["b"]) != EntryValueMax || len(users) != 3 {
			t.Errorf("%d users: %.40q", len(users), fmt.Sprint(users))
		}
		if n := len(k.c.Entries("acl")); n != 0 {
			t.Errorf("%d rules", n)
		}
	}
	check()
	k.reopen()
	check()
}

// What is beyond the bounds is refused as a whole.
func TestEntriesBounds(t *testing.T) {
	k := openCluster(t, vfs.NewMem())
	defer func() { k.close() }()
	ctx := testContext(t)
	many := func(kind string, n int) (out []Entry) {
		for i := range n {
			out = append(out, Entry{kind, fmt.Sprint(i), []byte{1}})
		}
		return out
	}
	k.set(many("full", EntriesMax)...)
	kinds := make([]Entry, entryKindsMax)
	for i := range kinds {
		kinds[i] = Entry{fmt.Sprint("kind", i), "", []byte{}}
	}
	large := make([]Entry, 64)
	for i := range large {
		large[i] = Entry{"large", fmt.Sprint(i), make([]byte, EntryValueMax)}
	}
	good := Entry{"user", "good", []byte("g")}
	for what, c := range map[string]struct {
		list []Entry
		want error
	}{
		"a large value":  {[]Entry{good, {"user", "a", make([]byte, EntryValueMax+1)}}, ErrInvalidConfig},
		"a long key":     {[]Entry{good, {"user", strings.Repeat("k", EntryKeyMax+1), []byte{1}}}, ErrInvalidConfig},
		"no kind":        {[]Entry{good, {"", "a", []byte{1}}}, ErrInvalidConfig},
		"one too many":   {[]Entry{good, {"full", "more", []byte{1}}}, ErrInvalidConfig},
		"too many kinds": {kinds, ErrInvalidConfig},
		"too much":       {append(large, good), ErrTooLarge},
	} {
		if err := k.c.SetEntries(ctx, c.list); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := len(k.c.Entries("user")); n != 0 {
		t.Errorf("%d entries of refused changes", n)
	}
	k.set(Entry{"full", "0", nil}, Entry{"full", "more", []byte{1}}, Entry{"full", "1", []byte{2}})
	if n := len(k.c.Entries("full")); n != EntriesMax {
		t.Errorf("%d entries", n)
	}
	k.set(large[:62]...) // nearly all that may change at once
}

// Any node changes entries, and all know them, those that only copy the metadata too.
func TestEntriesOfMany(t *testing.T) {
	n := newMemberNet(t)
	one := n.open(n.config(1, vfs.NewMem(), nil))
	fs := vfs.NewMem()
	two := n.open(n.config(2, fs, joining(1)))
	ctx := testContext(t)
	if err := two.Controller.SetEntries(ctx, []Entry{{"user", "a", []byte("from two")}, {"user", "b", []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	if got := two.Controller.Entries("user"); string(got["a"]) != "from two" {
		t.Errorf("where it was set: %q", got)
	}
	if got := one.Controller.Entries("user"); string(got["a"]) != "from two" {
		t.Errorf("where it was decided: %q", got)
	}
	if err := one.Controller.SetEntries(ctx, []Entry{{"user", "a", nil}}); err != nil {
		t.Fatal(err)
	}
	gone := func(c *Controller) bool {
		s := c.mu.entries["user"]
		return s != nil && len(s.all) == 1 && s.all["b"] != nil
	}
	two.until("the entry is gone", gone)
	cfg := two.cfg
	two.close()
	two = n.open(cfg)
	two.until("the entries after a restart", gone)
	two.close()
	one.close()
}
