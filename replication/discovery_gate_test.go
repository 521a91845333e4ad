package replication

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/billetlog/billet/transport"
)

func labelled(text string) []byte {
	return append([]byte{mlLabel, byte(len("test"))}, "test"+text...)
}

func packetFrame(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{gossipPackets}, uint16(len(b))), b...)
}

// Bytes that no node sends end their stream, and the node goes on as before.
func TestDiscoveryHostileBytes(t *testing.T) {
	t.Parallel() // it waits, mostly
	m := transport.NewMemoryNetwork(1)
	defer func() { _ = m.Close() }()
	a := startGossiper(t, m.Host("a"), "a", fresh(1, 1), nil, func(c *discoveryConfig) { c.timings.logEvery = 1 })
	b := startGossiper(t, m.Host("b"), "b", fresh(2, 2), []string{"a"}, nil)
	together(t, a, b)
	stream := func(text string) []byte { return append([]byte{gossipStream}, labelled(text)...) }
	compressed := "\x09\x82\xa4Algo\x00\xa3Buf\xa1x"
	own := errHostileGossip.Error() + ": "
	deep := "\x81\xa1x" + string(bytes.Repeat([]byte{0x91}, gossipStreamMax))
	for name, attack := range map[string]struct {
		sent []byte
		why  string
	}{
		"nothing":                    {nil, ""},
		"unknown kind":               {[]byte{99, 1, 2, 3}, own + "a stream of kind 99"},
		"noise":                      {bytes.Repeat([]byte("noise"), 1000), own + "a stream of kind 110"},
		"empty packet":               {packetFrame(nil), own + "an empty packet"},
		"compressed packet":          {packetFrame(labelled(compressed)), own + "a message of type 9"},
		"compressed in a compound":   {packetFrame(labelled("\x07\x01\x00\x02\x09\x00")), own + "a message of type 9"},
		"message of users":           {packetFrame(labelled("\x08hello")), own + "a message of type 8"},
		"compound of nothing":        {packetFrame(labelled("\x07\xff\x00")), own + "a truncated message"},
		"compounds without end":      {packetFrame(labelled("\x07\x01\x00\x0c\x07\x01\x00\x08\x07\x01\x00\x04\x07\x01\x00\x00")), own + "a message of type 7"},
		"half a packet":              {packetFrame(labelled("\x00"))[:5], ""},
		"compressed stream":          {stream(compressed), own + "a stream of type 9"},
		"a stream of users":          {stream("\x08\x81\xaaUserMsgLen\xd2\x01\x00\x00\x00"), own + "a stream of type 8"},
		"a million nodes":            {stream("\x06\x83\xa4Join\xc3\xa5Nodes\xd2\x00\x0f\x00\x00\xacUserStateLen\x00"), own + "a number of type 0xd2"},
		"many nodes":                 {stream("\x06\x83\xa4Join\xc3\xa5Nodes\xcd\xff\xff\xacUserStateLen\x00"), own + "a push/pull of 65535 nodes"},
		"negative nodes":             {stream("\x06\x83\xa4Join\xc3\xa5Nodes\xd1\xff\xff\xacUserStateLen\x00"), own + "a negative number"},
		"much state":                 {stream("\x06\x83\xa4Join\xc3\xa5Nodes\x00\xacUserStateLen\xd2\x01\x00\x00\x00"), own + "a push/pull with another head"},
		"a map without end":          {stream("\x06\x8f\xa4Join"), own + "a push/pull with another head"},
		"nested without end":         {stream("\x06\x83\xa4Join\xc3\xa5Nodes\x01\xacUserStateLen\x00" + deep), "maximum decoding depth"},
		"a ping nested without end":  {stream("\x00" + deep), "maximum decoding depth"},
		"encrypted, and it is large": {stream("\x0a\x01\x00\x00\x00"), "encryption is not configured"},
		"two labels":                 {append([]byte{gossipStream}, append(labelled(""), labelled("\x00")...)...), own + "a stream of type 244"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := m.Host("evil").Dial(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			before := a.log.count(attack.why)
			_, _ = conn.Write(attack.sent)
			// The other side closes: at once, or when nothing more comes for a while.
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, net.ErrClosed) {
				t.Fatal(err)
			}
			if attack.why != "" {
				eventually(t, "it was logged", func() bool { return a.log.count(attack.why) > before })
			}
		})
	}
	if !a.sees(b.self()) || !b.sees(a.self()) {
		t.Fatal("somebody was lost, or came in")
	}
	if err := b.d.update(formed(b.self())); err != nil {
		t.Fatal(err)
	}
	together(t, a, b)
}

// What this node's own memberlist sends passes the gate whatever the number of nodes: the head is that of this version of memberlist.
func TestGossipGateLetsOwnThrough(t *testing.T) {
	m := transport.NewMemoryNetwork(1)
	defer func() { _ = m.Close() }()
	a := startGossiper(t, m.Host("a"), "a", fresh(1, 1), nil, nil)
	var all []*gossiper
	for i := range 3 {
		all = append(all, startGossiper(t, m.Host(fmt.Sprint(i)), fmt.Sprint(i), fresh(int32(i), byte(i+2)), []string{"a"}, nil))
	}
	together(t, append(all, a)...)
	for _, nodes := range []string{"\x00", "\x7f", "\xcc\xff", "\xcd\x08\x00", "\xd0\x7f", "\xd1\x08\x00"} {
		head := bytes.NewReader([]byte(pushPullHead + "\xc2" + pushPullMid + nodes + pushPullTail))
		if err := checkPushPull(head.ReadByte); err != nil {
			t.Errorf("%q nodes: %v", nodes, err)
		}
	}
}

// FuzzGossipPacket looks at what peers send.
func FuzzGossipPacket(f *testing.F) {
	f.Add(labelled("\x07\x01\x00\x01\x00"))
	f.Add([]byte{mlLabel, 200, 1})
	f.Add([]byte{mlCRC, 0, 0, 0, 0, mlCompress})
	f.Fuzz(func(t *testing.T, b []byte) {
		if checkGossipPacket(b) == nil && len(b) > 0 && (b[0] == mlCompress || b[0] == mlUser) {
			t.Fatal("it passed")
		}
		c := bytes.NewReader(b)
		_ = checkPushPull(c.ReadByte)
	})
}
