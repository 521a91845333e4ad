package replication

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"strconv"
	"unicode/utf8"
)

// gossipPhase is how far a node is with being part of a cluster.
type gossipPhase uint8

// The phases.
const (
	phaseFresh   gossipPhase = iota + 1 // its directory belongs to no cluster
	phaseForming                        // it has a cluster's id, and the metadata group is being started
	phaseFormed                         // it is part of a cluster
)

// peerInfo is all that gossip tells of a node. Node names a place in the cluster, Dir what was stored there: two peers with one Node are
// possible, and both are reported.
type peerInfo struct {
	Node    int32
	Dir     [16]byte
	Cluster [16]byte // zero while fresh
	Phase   gossipPhase
	Addr    string // where the node listens: any text that dial understands
	Rack    string

	Generation uint64 // of the cluster
}

const (
	gossipAddrMax  = 255
	gossipRackMax  = 128
	peerRecordMax  = 512 // memberlist's own bound
	peerVersion    = 1
	peerFixed      = 1 + 1 + 4 + 16 + 16 + 1 // up to and with the length of the address
	peerSumSize    = 4
	gossipPort     = 1 // memberlist wants one; nothing listens there
	gossipIPPrefix = 0xfd
)

var errPeerRecord = errors.New("bad gossip record")

// valid says what a node may tell of itself.
func (p peerInfo) valid() error {
	switch {
	case p.Node < 0:
		return fmt.Errorf("%w: the node id %d is negative", errPeerRecord, p.Node)
	case p.Dir == [16]byte{}:
		return fmt.Errorf("%w: no directory id", errPeerRecord)
	case p.Phase < phaseFresh || p.Phase > phaseFormed:
		return fmt.Errorf("%w: phase %d is not known", errPeerRecord, p.Phase)
	case p.Phase == phaseFresh != (p.Cluster == [16]byte{}):
		return fmt.Errorf("%w: phase %d and cluster %x do not go together", errPeerRecord, p.Phase, p.Cluster)
	case p.Addr == "" || len(p.Addr) > gossipAddrMax || !utf8.ValidString(p.Addr):
		return fmt.Errorf("%w: the address must be text of 1 to %d bytes, is %q", errPeerRecord, gossipAddrMax, p.Addr)
	case len(p.Rack) > gossipRackMax || !utf8.ValidString(p.Rack):
		return fmt.Errorf("%w: the rack must be text of at most %d bytes, is %q", errPeerRecord, gossipRackMax, p.Rack)
	}
	return nil
}

// encodePeer writes what memberlist carries for a node:
//
//	version 1 | phase 1 | node 4 | dir 16 | cluster 16 | len 1 | addr | len 1 | rack | generation 8 | more | crc32c 4
//
// Integers are big-endian; the sum covers all before it. A reader skips "more", so that a field can be added; a change that old readers
// must not skip gets a new version.
func encodePeer(p peerInfo) []byte {
	b := make([]byte, 0, peerFixed+len(p.Addr)+1+len(p.Rack)+peerSumSize)
	b = append(b, peerVersion, byte(p.Phase))
	b = binary.BigEndian.AppendUint32(b, uint32(p.Node))
	b = append(b, p.Dir[:]...)
	b = append(b, p.Cluster[:]...)
	b = append(b, byte(len(p.Addr)))
	b = append(b, p.Addr...)
	b = append(b, byte(len(p.Rack)))
	b = append(b, p.Rack...)
	if p.Generation != 0 { // left out: 0
		b = binary.BigEndian.AppendUint64(b, p.Generation)
	}
	return binary.BigEndian.AppendUint32(b, peerSum(b))
}

// decodePeer reads what encodePeer wrote.
func decodePeer(b []byte) (peerInfo, error) {
	var p peerInfo
	switch {
	case len(b) < peerFixed+1+peerSumSize || len(b) > peerRecordMax:
		return p, fmt.Errorf("%w: %d bytes", errPeerRecord, len(b))
	case b[0] != peerVersion:
		return p, fmt.Errorf("%w: version %d, this node reads %d", errPeerRecord, b[0], peerVersion)
	}
	body := b[:len(b)-peerSumSize]
	if binary.BigEndian.Uint32(b[len(body):]) != peerSum(body) {
		return p, fmt.Errorf("%w: its checksum is wrong", errPeerRecord)
	}
	p.Phase = gossipPhase(body[1])
	p.Node = int32(binary.BigEndian.Uint32(body[2:]))
	copy(p.Dir[:], body[6:])
	copy(p.Cluster[:], body[22:])
	var ok bool
	rest := body[peerFixed-1:]
	if p.Addr, rest, ok = peerText(rest); ok {
		p.Rack, rest, ok = peerText(rest)
	}
	if ok && len(rest) >= 8 {
		p.Generation = binary.BigEndian.Uint64(rest)
	}
	if !ok {
		return peerInfo{}, fmt.Errorf("%w: it is cut short", errPeerRecord)
	}
	if err := p.valid(); err != nil {
		return peerInfo{}, err
	}
	return p, nil
}

func peerSum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// peerText takes a text and its length of one byte.
func peerText(b []byte) (text string, rest []byte, ok bool) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return "", nil, false
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], true
}

// gossipName is what memberlist knows a node by. It has the directory in it, so that two nodes that were given one id do not fight there.
func gossipName(p peerInfo) string {
	return "node-" + strconv.Itoa(int(p.Node)) + "/" + hex.EncodeToString(p.Dir[:8])
}

// gossipIP is what memberlist takes for a node's address. It follows from the directory alone and is the same wherever the node listens:
// memberlist refuses a known node at another address until long after that died, and it takes nothing but IP addresses.
func gossipIP(dir [16]byte) net.IP {
	ip := make(net.IP, net.IPv6len)
	ip[0] = gossipIPPrefix
	copy(ip[1:], dir[:])
	return ip
}
