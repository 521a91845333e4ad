package kafka

import (
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"strings"
)

// nameTypes are the parts of names that have a keyword in RFC 2253.
var nameTypes = map[string]string{
	"2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O", "2.5.4.11": "OU",
	"0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}

// name is a name in a certificate: sets of parts. What is not text stays as it was.
type (
	nameSET  []namePart
	namePart struct {
		Type  asn1.ObjectIdentifier
		Value asn1.RawValue
	}
)

// parseName writes a name by RFC 2253, from its last part to its first.
func parseName(der []byte) (string, error) {
	var name []nameSET
	if rest, err := asn1.Unmarshal(der, &name); err != nil || len(rest) > 0 {
		return "", fmt.Errorf("kafka: the name of a certificate: %d bytes too much: %w", len(rest), err)
	}
	var out strings.Builder
	for i := len(name) - 1; i >= 0; i-- {
		if out.Len() > 0 {
			out.WriteByte(',')
		}
		for j, part := range name[i] {
			if j > 0 {
				out.WriteByte('+')
			}
			writePart(&out, part)
		}
	}
	return out.String(), nil
}

func writePart(out *strings.Builder, part namePart) {
	oid := part.Type.String()
	var value any
	_, err := asn1.Unmarshal(part.Value.FullBytes, &value)
	text, isText := value.(string)
	if keyword := nameTypes[oid]; keyword != "" && isText && err == nil {
		out.WriteString(keyword + "=")
		writeEscaped(out, text)
		return
	}
	out.WriteString(oid + "=#" + hex.EncodeToString(part.Value.FullBytes))
}

// writeEscaped puts a backslash before what means something in a name.
func writeEscaped(out *strings.Builder, value string) {
	for i, r := range value {
		last := i+len(string(r)) == len(value)
		if strings.ContainsRune(`,+"\<>;`, r) || i == 0 && (r == ' ' || r == '#') || last && r == ' ' {
			out.WriteByte('\\')
		}
		out.WriteRune(r)
	}
}
