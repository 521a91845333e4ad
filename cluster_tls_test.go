package billet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	mathbig "math/big"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/billetlog/billet/transport"
)

// testCA signs certificates for nodes.
type testCA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func writePEM(t testing.TB, path, kind string, der []byte) string {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newTestCA(t testing.TB) *testCA {
	ca := &testCA{t: t, file: filepath.Join(t.TempDir(), "ca.pem")}
	var err error
	if ca.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: mathbig.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, ca.key.Public(), ca.key)
	if err == nil {
		ca.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, ca.file, "CERTIFICATE", der)
	return ca
}

// transport makes the mutual TLS of a node whose certificate carries the name.
func (ca *testCA) transport(name string) *transport.MutualTLS {
	ca.t.Helper()
	dir := ca.t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: mathbig.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.cert, key.Public(), ca.key)
	if err != nil {
		ca.t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	tls, err := transport.NewMutualTLS(transport.TLSOptions{CAFile: ca.file,
		CertFile: writePEM(ca.t, filepath.Join(dir, "cert.pem"), "CERTIFICATE", der),
		KeyFile:  writePEM(ca.t, filepath.Join(dir, "key.pem"), "EC PRIVATE KEY", private)})
	if err != nil {
		ca.t.Fatal(err)
	}
	return tls
}

// freeAddress finds a port of the loopback that nobody has at the moment.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := transport.TCP{}.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Over mutual TLS a node's certificate must carry its name; a node with another's certificate, or with one of another authority, stays outside.
func TestClusterOverTLS(t *testing.T) {
	ca, other := newTestCA(t), newTestCA(t)
	base, ctx := t.TempDir(), clusterContext(t)
	addresses := []string{freeAddress(t), freeAddress(t), freeAddress(t)}
	config := func(id int, tls *transport.MutualTLS) Config {
		return Config{Dir: filepath.Join(base, fmt.Sprint(id)), NodeID: int32(id), JournalBytes: 4 << 20,
			Cluster: Cluster{Listen: addresses[min(id, 3)-1], Transport: tls, Join: addresses, Bootstrap: []int32{1, 2, 3}}}
	}
	logs, errs := make([]*Log, 3), make([]error, 3)
	var wg sync.WaitGroup
	for i := range logs {
		wg.Go(func() { logs[i], errs[i] = Open(config(i+1, ca.transport(fmt.Sprintf("node-%d", i+1)))) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if err := logs[0].CreateTopic(ctx, Topic{Name: "t", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	for i, l := range logs {
		awaitTopic(t, l, "t")
		for n := range 10 {
			mustProduce(t, l, Record{Topic: "t", Value: fmt.Appendf(nil, "%d-%d", i, n)})
		}
	}
	readWhole(t, logs[2], "t", false, 30)

	for name, tls := range map[string]*transport.MutualTLS{"another's name": ca.transport("node-3"), "another authority": other.transport("node-4")} {
		stranger := config(4, tls)
		stranger.Dir += name
		stranger.Cluster.Listen, stranger.Cluster.Bootstrap = "127.0.0.1:0", nil
		stranger.OpenTimeout = 2 * time.Second
		if l, err := Open(stranger); err == nil {
			t.Errorf("%s: let in", name)
			_ = l.Close()
		}
	}
	if nodes, err := logs[0].Nodes(ctx); err != nil || len(nodes) != 3 {
		t.Errorf("nodes %v, %v", nodes, err)
	}
	for i := len(logs) - 1; i >= 0; i-- {
		if err := logs[i].Close(); err != nil {
			t.Error(err)
		}
	}
}
