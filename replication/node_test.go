package replication

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
)

const goldenMeta = `{"format":1,"cluster":"000102030405060708090a0b0c0d0e0f","node":7,"dir":"101112131415161718191a1b1c1d1e1f","opens":9,"forming":[7,8,9],"formed":true}
b0d460e76fb56628
`

func goldenNode() NodeIdentity {
	n := NodeIdentity{ID: 7, Opens: 9, Forming: []int32{7, 8, 9}, Formed: true}
	for i := range n.Cluster {
		n.Cluster[i], n.Dir[i] = byte(i), byte(i+16)
	}
	return n
}

func writeMeta(t *testing.T, content string) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/data"); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFileAtomic(mem, "/data/meta", []byte(content)); err != nil {
		t.Fatal(err)
	}
	return mem
}

func TestMetaGolden(t *testing.T) {
	if got := string(encodeMeta(goldenNode())); got != goldenMeta {
		t.Errorf("encoded:\n%s", got)
	}
	n, err := LoadNode(writeMeta(t, goldenMeta), "/data", 7)
	if err != nil || !reflect.DeepEqual(n, goldenNode()) {
		t.Errorf("loaded %+v, %v", n, err)
	}
}

func TestMetaDamaged(t *testing.T) {
	for i := range len(goldenMeta) {
		for _, bit := range []byte{0x01, 0x20, 0x80} {
			b := []byte(goldenMeta)
			b[i] ^= bit
			_, err := LoadNode(writeMeta(t, string(b)), "/data", 7)
			var damage *segment.CorruptionError
			if !errors.As(err, &damage) || damage.File != "/data/meta" {
				t.Errorf("byte %d flipped by %#x: %v", i, bit, err)
			}
		}
		if _, err := LoadNode(writeMeta(t, goldenMeta[:i]), "/data", 7); !errors.Is(err, segment.ErrCorrupt) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	if _, err := LoadNode(writeMeta(t, goldenMeta+"\n"), "/data", 7); !errors.Is(err, segment.ErrCorrupt) {
		t.Error("a byte too many is accepted")
	}
}

func signMeta(line string) string {
	return line + "\n" + hex16(xxhash.Sum64String(line)) + "\n"
}

func hex16(v uint64) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 16)
	for i := range b {
		b[15-i] = digits[v&15]
		v >>= 4
	}
	return string(b)
}

func TestMetaRefused(t *testing.T) {
	for _, c := range []struct {
		name, line string
		id         int32
		want       error
		says       string
	}{
		{"another node", `{"format":1,"cluster":"000102030405060708090a0b0c0d0e0f","node":7,"dir":"101112131415161718191a1b1c1d1e1f","opens":1,"formed":true}`, 8, ErrForeignDir, "belongs to node 7, this is node 8"},
		{"newer format", `{"format":2,"cluster":"000102030405060708090a0b0c0d0e0f","node":7,"shape":"round"}`, 7, nil, "format 2, this version knows 1"},
		{"short cluster id", `{"format":1,"cluster":"0001","node":7}`, 7, segment.ErrCorrupt, "cluster id"},
		{"long cluster id", `{"format":1,"cluster":"000102030405060708090a0b0c0d0e0f10","node":7}`, 7, segment.ErrCorrupt, "cluster id"},
		{"short directory id", `{"format":1,"cluster":"000102030405060708090a0b0c0d0e0f","node":7,"dir":"00"}`, 7, segment.ErrCorrupt, "directory id"},
		{"no JSON", `hello`, 7, segment.ErrCorrupt, ""},
	} {
		_, err := LoadNode(writeMeta(t, signMeta(c.line)), "/data", c.id)
		if err == nil || (c.want != nil && !errors.Is(err, c.want)) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.name == "newer format" && errors.Is(err, segment.ErrCorrupt) {
			t.Errorf("a newer format is taken for damage: %v", err)
		}
	}
}

// A new directory gets an identity that survives a power cut; one with partitions and without identity is not taken for new.
func TestMetaMissing(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/data"); err != nil {
		t.Fatal(err)
	}
	if err := mem.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	n, err := LoadNode(mem, "/data", 3)
	if err != nil || n.ID != 3 || n.Formed || n.Cluster != [16]byte{} || n.Dir == [16]byte{} {
		t.Fatalf("made %+v, %v", n, err)
	}
	if err := SaveNode(mem, "/data", n); err != nil {
		t.Fatal(err)
	}
	if again, err := LoadNode(mem.CrashClone(vfs.CrashOptions{}), "/data", 3); err != nil || !reflect.DeepEqual(again, n) {
		t.Errorf("after a power cut %+v, %v", again, err)
	}
	if err := mem.MkdirAll("/data/partitions"); err != nil {
		t.Fatal(err)
	}
	if err := mem.Remove("/data/meta"); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadNode(mem, "/data", 3); !errors.Is(err, ErrForeignDir) || !strings.Contains(err.Error(), "meta is missing") {
		t.Errorf("partitions without identity: %v", err)
	}
}
