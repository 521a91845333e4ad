package batch

import (
	"encoding/binary"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestVarintAgainstTheStandardLibrary(t *testing.T) {
	check := func(t require, v int64) {
		want := binary.AppendVarint(nil, v)
		got := make([]byte, 12)
		n := putVarlong(got, 1, v)
		if string(got[1:n]) != string(want) || varlongSize(v) != len(want) {
			t.Fatalf("%d: % x of size %d, want % x", v, got[1:n], varlongSize(v), want)
		}
		if back, pos := varlong(got, 1); back != v || pos != n {
			t.Fatalf("%d reads as %d at %d", v, back, pos)
		}
		back, pos := varint(got, 1)
		if v == int64(int32(v)) {
			if int64(back) != v || pos != n {
				t.Fatalf("%d reads as %d at %d", v, back, pos)
			}
		} else if pos != -1 {
			t.Fatalf("%d reads as 32 bits: %d", v, back)
		}
		for cut := 1; cut < n; cut++ {
			if _, pos := varlong(got[:cut], 1); pos != -1 {
				t.Fatalf("%d cut to %d bytes is read", v, cut-1)
			}
		}
	}
	for _, v := range []int64{0, -1, 1, 63, 64, -64, -65, 8191, 8192, math.MaxInt32, math.MinInt32,
		math.MaxInt32 + 1, math.MinInt32 - 1, math.MaxInt64, math.MinInt64} {
		check(t, v)
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.Int64().Draw(t, "v")>>rapid.IntRange(0, 63).Draw(t, "shift"))
	})
}

func TestVarintRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		b    []byte
		pos  int
	}{
		{"position -1", []byte{0}, -1},
		{"position past the end", []byte{0}, 2},
		{"no bytes", nil, 0},
		{"eleven bytes", []byte{128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 0}, 0},
		{"65 bits", []byte{128, 128, 128, 128, 128, 128, 128, 128, 128, 2}, 0},
	} {
		if _, pos := varlong(c.b, c.pos); pos != -1 {
			t.Errorf("%s: varlong reads up to %d", c.name, pos)
		}
		if _, pos := varint(c.b, c.pos); pos != -1 {
			t.Errorf("%s: varint reads up to %d", c.name, pos)
		}
	}
	for _, b := range [][]byte{{128, 128, 128, 128, 16}, {128, 128, 128, 128, 128, 0}} {
		if _, pos := varint(b, 0); pos != -1 {
			t.Errorf("varint reads % x", b)
		}
	}
	if v, pos := varint([]byte{0x80, 0}, 0); v != 0 || pos != 2 {
		t.Errorf("a zero in two bytes reads as %d at %d", v, pos)
	}
}
