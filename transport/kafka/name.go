package kafka

import (
	"crypto/x509/pkix"
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

// parseName writes a name by RFC 2253, from its last part to its first.
func parseName(der []byte) (string, error) {
	var name pkix.RDNSequence
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
			if err := writePart(&out, part); err != nil {
				return "", err
			}
		}
	}
	return out.String(), nil
}

func writePart(out *strings.Builder, part pkix.AttributeTypeAndValue) error {
	oid := part.Type.String()
	value, isText := part.Value.(string)
	if keyword := nameTypes[oid]; keyword != "" && isText {
		out.WriteString(keyword + "=")
		writeEscaped(out, value)
		return nil
	}
	der, err := asn1.Marshal(part.Value)
	if err != nil {
		return err
	}
	out.WriteString(oid + "=#" + hex.EncodeToString(der))
	return nil
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
