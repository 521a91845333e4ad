package billet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	mathbig "math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// A listener that is open to everybody has to be one that only this machine reaches, or
// wanted.
func TestKafkaConfig(t *testing.T) {
	files := KafkaTLS{CertFile: "cert", KeyFile: "key"}
	clients := KafkaTLS{CertFile: "cert", KeyFile: "key", ClientCAFile: "ca"}
	for _, c := range []struct {
		name  string
		kafka Kafka
		wrong string // the field that the error names
	}{
		{"none", Kafka{}, ""},
		{"loopback", Kafka{Addr: "127.0.0.1:0"}, ""},
		{"loopback of version 6", Kafka{Addr: "[::1]:9092"}, ""},
		{"localhost", Kafka{Addr: "localhost:9092"}, ""},
		{"all addresses", Kafka{Addr: ":9092"}, "Kafka.Addr"},
		{"all addresses, by name", Kafka{Addr: "0.0.0.0:9092"}, "Kafka.Addr"},
		{"a name", Kafka{Addr: "broker.example:9092"}, "Kafka.Addr"},
		{"open and wanted", Kafka{Addr: ":9092", AllowAnonymous: true}, ""},
		{"TLS alone is open", Kafka{Addr: ":9092", TLS: files}, "Kafka.Addr"},
		{"certificates of clients", Kafka{Addr: ":9092", TLS: clients}, ""},
		{"SASL", Kafka{Addr: ":9092", SASL: []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}}, ""},
		{"an unknown mechanism", Kafka{Addr: ":9092", SASL: []string{"GSSAPI"}}, "Kafka.SASL"},
		{"no port", Kafka{Addr: "127.0.0.1"}, "Kafka.Addr"},
		{"no port to tell", Kafka{Addr: "127.0.0.1:0", Advertise: "here"}, "Kafka.Advertise"},
		{"half of TLS", Kafka{Addr: "127.0.0.1:0", TLS: KafkaTLS{KeyFile: "key"}}, "Kafka.TLS"},
		{"a CA without TLS", Kafka{Addr: "127.0.0.1:0", TLS: KafkaTLS{ClientCAFile: "ca"}}, "Kafka.TLS.ClientCAFile"},
		{"more listeners", Kafka{Addr: "127.0.0.1:0", Listeners: []KafkaListener{{Name: "OUTSIDE", Addr: ":1", SASL: []string{"PLAIN"}}}}, ""},
		{"a listener without a name", Kafka{Addr: "127.0.0.1:0", Listeners: []KafkaListener{{Addr: "127.0.0.1:0"}}}, "Kafka.Listeners[0].Name"},
		{"a name twice", Kafka{Addr: "127.0.0.1:0", Listeners: []KafkaListener{{Name: "CLIENT", Addr: "127.0.0.1:0"}}}, "Kafka.Listeners[0].Name"},
		{"an open one more", Kafka{Addr: "127.0.0.1:0", Listeners: []KafkaListener{{Name: "A", Addr: ":0"}}}, "Kafka.Listeners[0].Addr"},
		{"more listeners and no first", Kafka{Listeners: []KafkaListener{{Name: "A", Addr: "127.0.0.1:0"}}}, "Kafka.Addr"},
		{"a super user without a type", Kafka{Addr: "127.0.0.1:0", SuperUsers: []string{"admin"}}, "Kafka.SuperUsers"},
		{"a negative bound", Kafka{Addr: "127.0.0.1:0", FetchMemoryMax: -1}, "Kafka.FetchMemoryMax"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := Config{Dir: "d", Kafka: c.kafka}
			config.EnsureDefaults()
			err := config.Validate()
			switch {
			case c.wrong == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.wrong != "" && (!errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), c.wrong+" ")):
				t.Errorf("got %v, want one that names %s", err, c.wrong)
			}
		})
	}
}

// clientCert makes a certificate for a client, with a name of several parts.
func (ca *testCA) clientCert(name pkix.Name) tls.Certificate {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: mathbig.NewInt(7), Subject: name, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.cert, key.Public(), ca.key)
	if err != nil {
		ca.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serverFiles makes the files of a listener.
func (ca *testCA) serverFiles() KafkaTLS {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: mathbig.NewInt(8), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.cert, key.Public(), ca.key)
	if err != nil {
		ca.t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	dir := ca.t.TempDir()
	return KafkaTLS{CertFile: writePEM(ca.t, filepath.Join(dir, "cert.pem"), "CERTIFICATE", der),
		KeyFile: writePEM(ca.t, filepath.Join(dir, "key.pem"), "EC PRIVATE KEY", keyDER), ClientCAFile: ca.file}
}

// kafkaAdmin connects to a listener.
func kafkaAdmin(t *testing.T, addr string, opts ...kgo.Opt) *kadm.Client {
	t.Helper()
	opts = append(opts, kgo.SeedBrokers(addr), kgo.RequestRetries(1), kgo.RetryTimeout(10*time.Second))
	client, err := kadm.NewOptClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// Users prove who they are by any mechanism, survive a restart, and may do what the
// rules say, which other clients change.
func TestKafkaUsersAndRules(t *testing.T) {
	ca := newTestCA(t)
	config := Config{Dir: t.TempDir(), Kafka: Kafka{
		Addr: "127.0.0.1:0", SASL: []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"},
		Listeners: []KafkaListener{{Name: "CERTIFICATES", Addr: "127.0.0.1:0", Advertise: "localhost:0", TLS: ca.serverFiles()}},
		Authorize: true, SuperUsers: []string{"User:root", "User:CN=ops,O=Billet"},
	}}
	open := func() *Log {
		log, err := Open(config)
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	log := open()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for user, password := range map[string]string{"root": "a secret", "reader": "read"} {
		if err := log.SetKafkaUser(ctx, user, password); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	log = open()
	defer func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}()

	root := scram.Auth{User: "root", Pass: "a secret"}
	for name, mechanism := range map[string]sasl.Mechanism{
		"PLAIN": plain.Auth{User: "root", Pass: "a secret"}.AsMechanism(), "256": root.AsSha256Mechanism(), "512": root.AsSha512Mechanism(),
	} {
		if _, err := kafkaAdmin(t, log.KafkaAddr(), kgo.SASL(mechanism)).DescribeUserSCRAMs(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, mechanism := range map[string]sasl.Mechanism{
		"PLAIN": plain.Auth{User: "root", Pass: "wrong"}.AsMechanism(), "512": scram.Auth{User: "nobody", Pass: "a secret"}.AsSha512Mechanism(),
	} {
		if _, err := kafkaAdmin(t, log.KafkaAddr(), kgo.SASL(mechanism)).ListTopics(ctx); !errors.Is(err, kerr.SaslAuthenticationFailed) {
			t.Errorf("%s with wrong credentials: %v", name, err)
		}
	}

	admin := kafkaAdmin(t, log.KafkaAddr(), kgo.SASL(root.AsSha512Mechanism()))
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	readerAuth := kgo.SASL(scram.Auth{User: "reader", Pass: "read"}.AsSha256Mechanism())
	reader := kafkaAdmin(t, log.KafkaAddr(), readerAuth)
	seen := func() bool {
		topics, err := kafkaAdmin(t, log.KafkaAddr(), readerAuth).ListTopics(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return topics.Has("orders") && topics["orders"].Err == nil
	}
	if seen() {
		t.Error("a user without a rule sees a topic")
	}
	any := kadm.NewACLs().AnyResource().Allow().AllowHosts().Deny().DenyHosts().Operations()
	if got, err := reader.DescribeACLs(ctx, any); err != nil || len(got) == 0 || !errors.Is(got[0].Err, kerr.ClusterAuthorizationFailed) {
		t.Errorf("a user without a rule lists rules: %v, %v", got, err)
	}
	rule := kadm.NewACLs().Topics("ord").ResourcePatternType(kadm.ACLPatternPrefixed).Allow("User:reader").AllowHosts("127.0.0.1").Operations(kadm.OpRead)
	if made, err := admin.CreateACLs(ctx, rule); err != nil || len(made) != 1 || made[0].Err != nil {
		t.Fatalf("made %+v: %v", made, err)
	}
	if !seen() {
		t.Error("a rule that allows to read does not let the user see the topic")
	}
	if gone, err := admin.DeleteACLs(ctx, rule); err != nil || len(gone) != 1 || len(gone[0].Deleted) != 1 {
		t.Errorf("deleted %v: %v", gone, err)
	}
	if seen() {
		t.Error("a rule counts that was deleted")
	}

	// Whom the certificate names, and not one of another name.
	ops := &tls.Config{RootCAs: caPool(ca), Certificates: []tls.Certificate{ca.clientCert(pkix.Name{CommonName: "ops", Organization: []string{"Billet"}})}}
	other := &tls.Config{RootCAs: caPool(ca), Certificates: []tls.Certificate{ca.clientCert(pkix.Name{CommonName: "ops"})}}
	at := log.KafkaListenerAddr("CERTIFICATES")
	if users, err := kafkaAdmin(t, at, kgo.DialTLSConfig(ops)).DescribeUserSCRAMs(ctx); err != nil || len(users) != 2 {
		t.Errorf("by certificate: %v, %v", users, err)
	}
	if _, err := kafkaAdmin(t, at, kgo.DialTLSConfig(other)).DescribeUserSCRAMs(ctx); !errors.Is(err, kerr.ClusterAuthorizationFailed) {
		t.Errorf("by another certificate: %v", err)
	}

	// Users are made by clients, too.
	if _, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: "new", Mechanism: kadm.ScramSha512, Iterations: 5000, Password: "own"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := kafkaAdmin(t, log.KafkaAddr(), kgo.SASL(plain.Auth{User: "new", Pass: "own"}.AsMechanism())).ListTopics(ctx); err != nil {
		t.Errorf("a user that a client made: %v", err)
	}
	if err := log.DeleteKafkaUser(ctx, "new"); err != nil {
		t.Fatal(err)
	}
	if _, err := kafkaAdmin(t, log.KafkaAddr(), kgo.SASL(plain.Auth{User: "new", Pass: "own"}.AsMechanism())).ListTopics(ctx); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("a user that was deleted: %v", err)
	}
}

func caPool(ca *testCA) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}
