package batch

import "testing"

// The values are those of Kafka's own test of its murmur2, and partitions that
// follow from them.
func TestMurmur2(t *testing.T) {
	for _, c := range []struct {
		key  string
		want int32
	}{
		{"21", -973932308},
		{"foobar", -790332482},
		{"a-little-bit-long-string", -985981536},
		{"a-little-bit-longer-string", -1486304829},
		{"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
		{"abc", 479470107},
	} {
		if got := int32(Murmur2([]byte(c.key))); got != c.want {
			t.Errorf("Murmur2(%q) = %d, want %d", c.key, got, c.want)
		}
		want := int(c.want&0x7fffffff) % 12
		if got := PartitionForKey([]byte(c.key), 12); got != want {
			t.Errorf("PartitionForKey(%q, 12) = %d, want %d", c.key, got, want)
		}
	}
}

func TestPartitionForKeyRange(t *testing.T) {
	if got := PartitionForKey([]byte("k"), 0); got != -1 {
		t.Errorf("no partitions: %d", got)
	}
	if got := PartitionForKey([]byte("k"), -3); got != -1 {
		t.Errorf("negative partitions: %d", got)
	}
	if PartitionForKey(nil, 100) != PartitionForKey([]byte{}, 100) {
		t.Error("nil and empty keys differ")
	}
	seen := make(map[int]int)
	for i := range 3000 {
		seen[PartitionForKey([]byte{byte(i), byte(i >> 8), 7}, 3)]++
	}
	for p := range 3 {
		if seen[p] < 800 {
			t.Errorf("partition %d got %d of 3000 keys", p, seen[p])
		}
	}
	if len(seen) != 3 {
		t.Errorf("partitions %v", seen)
	}
}
