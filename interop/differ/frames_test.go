package differ

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func frameScenarios() []scenario {
	return []scenario{
		{"api-versions", playVersions},
		{"api-versions-unknown", playVersionsUnknown},
		{"api-versions-software", playVersionsSoftware},
		{"frames-bad", playBadFrames},
		{"frames-order", playOrder},
		{"versions-beyond", playVersionsBeyond},
		{"tags-unknown", playUnknownTags},
	}
}

func versionsRequest(name string) *kmsg.ApiVersionsRequest {
	q := kmsg.NewPtrApiVersionsRequest()
	q.ClientSoftwareName, q.ClientSoftwareVersion = name, "1.0"
	return q
}

func playVersions(p *play) {
	for _, v := range p.versions(kmsg.ApiVersions) {
		p.askVersion("all", versionsRequest("differ"), v)
	}
}

// playVersionsUnknown wants the answer of version 0, whatever was asked.
func playVersionsUnknown(p *play) {
	for _, v := range []int16{99, 32767, -1} {
		c := p.dial()
		c.correlation++
		body := binary.BigEndian.AppendUint16(nil, uint16(kmsg.ApiVersions))
		body = binary.BigEndian.AppendUint16(body, uint16(v))
		body = binary.BigEndian.AppendUint32(body, uint32(c.correlation))
		body = append(body, 0, 1, 'x', 0, 2, 'a', 2, 'b', 0)
		frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
		label := fmt.Sprint("version ", v)
		if _, err := c.Write(frame); err != nil {
			p.note(label, lost(err))
			continue
		}
		q := kmsg.NewPtrApiVersionsRequest()
		r, err := c.receive(q)
		if err != nil {
			p.note(label, lost(err))
			continue
		}
		p.note(label, p.names.lines(r)...)
		p.askVersion("afterwards", versionsRequest("differ"), 0)
	}
}

func playVersionsSoftware(p *play) {
	for _, name := range []string{"", "-", "a", "a b", "a.", ".a", "good-name.1", "a/b", "é"} {
		p.askVersion(fmt.Sprintf("name %q", name), versionsRequest(name), 3)
	}
	q := versionsRequest("a")
	q.ClientSoftwareVersion = ""
	p.askVersion("no version", q, 3)
}

// playBadFrames sends what is no request. Brokers close the connection.
func playBadFrames(p *play) {
	header := func(key, version uint16) []byte {
		b := binary.BigEndian.AppendUint16(nil, key)
		b = binary.BigEndian.AppendUint16(b, version)
		return append(b, 0, 0, 0, 1, 0, 1, 'x')
	}
	frame := func(body []byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	for _, c := range []struct {
		what string
		raw  []byte
	}{
		{"empty frame", frame(nil)},
		{"negative length", []byte{0xff, 0xff, 0xff, 0xff}},
		{"giant length", []byte{0x7f, 0xff, 0xff, 0xff}},
		{"one byte", frame([]byte{1})},
		{"half a header", frame(header(3, 1)[:6])},
		{"http", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		{"tls", []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}},
		{"unknown key", frame(header(999, 0))},
		{"negative key", frame(header(0xffff, 0))},
		{"broker's key", frame(header(4, 0))},
		{"truncated body", frame(header(3, 1))},
		{"negative array", frame(append(header(3, 1), 0xff, 0xff, 0xff, 0x00))},
		{"giant array", frame(append(header(3, 1), 0x7f, 0xff, 0xff, 0xff))},
		{"trailing bytes", frame(append(header(3, 1), 0, 0, 0, 0, 1, 2, 3))},
		{"client id of null", frame([]byte{0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0})},
		{"client id too long", frame([]byte{0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0, 0, 0, 0})},
	} {
		conn := p.dial()
		if _, err := conn.Write(c.raw); err != nil {
			p.note(c.what, lost(err))
			continue
		}
		answer, err := conn.readFrame()
		if err != nil {
			p.note(c.what, lost(err))
			continue
		}
		p.note(c.what, fmt.Sprintf("answer to %d", binary.BigEndian.Uint32(answer)))
	}
}

// playOrder sends many requests at once; the answers come in their order.
func playOrder(p *play) {
	p.topic(p.name(), 1)
	c := p.dial()
	var asked []kmsg.Request
	for i := range 20 {
		var q kmsg.Request = metadataOf(p.name())
		version := p.newest(kmsg.Metadata, -1)
		if i%3 == 0 {
			q, version = fetchOf(p.name(), 0, 0), p.newest(kmsg.Fetch, 12)
		}
		if err := c.sendRequest(q, version); err != nil {
			p.note("sending", lost(err))
			return
		}
		asked = append(asked, q)
	}
	c.correlation -= int32(len(asked))
	for i, q := range asked {
		c.correlation++
		r, err := c.receive(q)
		label := fmt.Sprintf("answer %d", i)
		if err != nil {
			p.note(label, lost(err))
			return
		}
		p.note(label, fmt.Sprintf("%T", r))
	}
}

// playVersionsBeyond asks in versions that nobody has.
func playVersionsBeyond(p *play) {
	for key := range int16(70) {
		if _, ok := p.shared[key]; !ok || key == kmsg.ApiVersions.Int16() {
			continue
		}
		c := p.dial()
		body := binary.BigEndian.AppendUint16(nil, uint16(key))
		body = append(body, 0, 90, 0, 0, 0, 1, 0, 1, 'x', 0, 0, 0, 0, 0, 0)
		_, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
		if err == nil {
			_, err = c.readFrame()
		}
		p.note(kmsg.NameForKey(key), fmt.Sprint(err != nil && lost(err) == "closed"))
	}
}

// playUnknownTags sends tags that nobody knows, which are to be skipped.
func playUnknownTags(p *play) {
	p.topic(p.name(), 1)
	for _, v := range p.versions(kmsg.Metadata) {
		if v < 9 {
			continue
		}
		q := metadataOf(p.name())
		q.UnknownTags.Set(77, []byte("what"))
		q.Topics[0].UnknownTags.Set(5000, nil)
		p.askVersion("tags", q, v)
	}
}
