package kafka

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"
)

// Names are written as Java does, since access rules are about those.
func TestDistinguishedName(t *testing.T) {
	attribute := func(oid asn1.ObjectIdentifier, value any) pkix.RelativeDistinguishedNameSET {
		return pkix.RelativeDistinguishedNameSET{{Type: oid, Value: value}}
	}
	cn, o, ou, c := asn1.ObjectIdentifier{2, 5, 4, 3}, asn1.ObjectIdentifier{2, 5, 4, 10}, asn1.ObjectIdentifier{2, 5, 4, 11}, asn1.ObjectIdentifier{2, 5, 4, 6}
	dc, mail := asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 25}, asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 1}
	for _, x := range []struct {
		name pkix.RDNSequence
		want string
	}{
		{pkix.RDNSequence{attribute(cn, "ann")}, "CN=ann"},
		{pkix.RDNSequence{attribute(c, "DE"), attribute(o, "Billet"), attribute(ou, "Dev"), attribute(cn, "ann")}, "CN=ann,OU=Dev,O=Billet,C=DE"},
		{pkix.RDNSequence{attribute(cn, "ann"), attribute(o, "Billet")}, "O=Billet,CN=ann"},
		{pkix.RDNSequence{attribute(dc, "example"), attribute(cn, "ann")}, "CN=ann,DC=example"},
		{pkix.RDNSequence{attribute(cn, `a,b+c"d\e<f>g;h`)}, `CN=a\,b\+c\"d\\e\<f\>g\;h`},
		{pkix.RDNSequence{attribute(cn, " a b ")}, `CN=\ a b\ `},
		{pkix.RDNSequence{attribute(cn, "#1#")}, `CN=\#1#`},
		{pkix.RDNSequence{attribute(mail, asn1.RawValue{Tag: asn1.TagIA5String, Bytes: []byte("a@b")})}, "1.2.840.113549.1.9.1=#1603614062"},
		{pkix.RDNSequence{{{Type: cn, Value: "ann"}, {Type: ou, Value: "Dev"}}}, "CN=ann+OU=Dev"},
		{pkix.RDNSequence{attribute(cn, "Jürgen")}, "CN=Jürgen"},
		{nil, ""},
	} {
		der, err := asn1.Marshal(x.name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseName(der); err != nil || got != x.want {
			t.Errorf("%q, want %q: %v", got, x.want, err)
		}
	}
	if _, err := parseName([]byte{0x30, 0x05, 1}); err == nil {
		t.Error("a name that is cut was taken")
	}
}
