package replication

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
)

func TestPeerRecord(t *testing.T) {
	p := formed(fresh(7, 1))
	p.Addr = "10.0.0.2:7400"
	const golden = "01030000000701010101010101010101010101010101cccccccccccccccccccccccccccccccc0d31302e302e302e323a37343030067261636b2d37"
	b := encodePeer(p)
	if have := hex.EncodeToString(b[:len(b)-peerSumSize]); have != golden {
		t.Errorf("the format changed: %s", have)
	}
	if q, err := decodePeer(b); err != nil || q != p {
		t.Fatalf("%+v, %v", q, err)
	}

	p.Addr, p.Rack = strings.Repeat("a", gossipAddrMax), strings.Repeat("r", gossipRackMax)
	if b = encodePeer(p); len(b) > peerRecordMax {
		t.Fatalf("the longest record has %d bytes", len(b))
	}
	// A field that this version does not know.
	b = append(b[:len(b)-peerSumSize], "more"...)
	b = binary.BigEndian.AppendUint32(b, peerSum(b))
	if q, err := decodePeer(b); err != nil || q != p {
		t.Fatalf("a record with more in it: %+v, %v", q, err)
	}
	for i := range b {
		bad := append([]byte(nil), b...)
		bad[i] ^= 0x10
		if _, err := decodePeer(bad); err == nil {
			t.Errorf("byte %d was changed and nobody noticed", i)
		}
		if _, err := decodePeer(b[:i]); err == nil {
			t.Errorf("%d bytes were taken for a record", i)
		}
	}
}

// FuzzPeerRecord reads records that peers send, with a right sum, so that what is behind it is reached.
func FuzzPeerRecord(f *testing.F) {
	p := formed(fresh(7, 1))
	p.Addr = "n1:0"
	for _, p := range []peerInfo{p, {}} {
		b := encodePeer(p)
		f.Add(b[:len(b)-peerSumSize])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = decodePeer(b)
		p, err := decodePeer(binary.BigEndian.AppendUint32(b[:len(b):len(b)], peerSum(b)))
		if err != nil {
			return
		}
		if err := p.valid(); err != nil {
			t.Fatal(err)
		}
		if q, err := decodePeer(encodePeer(p)); err != nil || p != q {
			t.Fatalf("%+v became %+v, %v", p, q, err)
		}
	})
}
