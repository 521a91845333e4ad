package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/xdg-go/scram"

	"github.com/billetlog/billet/internal/kerr"
)

// newSaslRig is a server that asks for SASL and has one user.
func newSaslRig(t *testing.T, change ...func(*Options)) *connRig {
	t.Helper()
	r := newConnRig(t, append([]func(*Options){func(o *Options) { o.Listeners[0].SASL = Mechanisms() }}, change...)...)
	for _, name := range []string{"ann", "bob"} {
		if err := SetUser(t.Context(), r.store, name, "secret "+name); err != nil {
			t.Fatal(err)
		}
	}
	r.answerTo(kmsg.CreateTopics, func(c *call, request kmsg.Request, a *answer) {
		answer := request.ResponseKind().(*kmsg.CreateTopicsResponse)
		answer.Topics = []kmsg.CreateTopicsResponseTopic{{Topic: c.principal}}
		a.give(answer)
	})
	r.Serve()
	return r
}

func (c *testClient) handshake(mechanism string, version int16) *kmsg.SASLHandshakeResponse {
	c.t.Helper()
	q := kmsg.NewPtrSASLHandshakeRequest()
	q.Mechanism = mechanism
	return ask[*kmsg.SASLHandshakeResponse](c, q, version)
}

func (c *testClient) authenticate(token string, version int16) *kmsg.SASLAuthenticateResponse {
	c.t.Helper()
	q := kmsg.NewPtrSASLAuthenticateRequest()
	q.SASLAuthBytes = []byte(token)
	return ask[*kmsg.SASLAuthenticateResponse](c, q, version)
}

// who asks who the client is.
func (c *testClient) who() string {
	c.t.Helper()
	return ask[*kmsg.CreateTopicsResponse](c, kmsg.NewPtrCreateTopicsRequest(), 5).Topics[0].Topic
}

// bare sends a token with only its length, and reads such a one.
func (c *testClient) bare(token string) string {
	c.t.Helper()
	c.write(bigEndian(len(token), token))
	b, err := c.next()
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

// scramWith is a client's side of SCRAM, one step after another.
func scramWith(t *testing.T, hash scram.HashGeneratorFcn, user, password string) *scram.ClientConversation {
	t.Helper()
	client, err := hash.NewClientUnprepped(user, password, "")
	if err != nil {
		t.Fatal(err)
	}
	return client.NewConversation()
}

func stepOf(t *testing.T, c *scram.ClientConversation, challenge string) string {
	t.Helper()
	out, err := c.Step(challenge)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSasl(t *testing.T) {
	r := newSaslRig(t)
	for version := range int16(3) {
		c := r.dial()
		ask[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest(), 3)
		if h := c.handshake("PLAIN", 1); h.ErrorCode != 0 || !slices.Equal(h.SupportedMechanisms, Mechanisms()) {
			t.Errorf("handshake: %+v", h)
		}
		if a := c.authenticate("\x00ann\x00secret ann", version); a.ErrorCode != 0 || a.SessionLifetimeMillis != 0 {
			t.Errorf("version %d: %+v", version, a)
		}
		if got := c.who(); got != "User:ann" {
			t.Errorf("the client is %s", got)
		}
		// Nobody asked for it again, and the client goes on.
		if h := c.handshake("PLAIN", 1); h.ErrorCode != kerr.ILLEGAL_SASL_STATE {
			t.Errorf("a handshake too much: code %d", h.ErrorCode)
		}
		if a := c.authenticate("\x00ann\x00secret ann", version); a.ErrorCode != kerr.ILLEGAL_SASL_STATE {
			t.Errorf("a token too much: code %d", a.ErrorCode)
		}
		if got := c.who(); got != "User:ann" {
			t.Errorf("then the client is %s", got)
		}
	}
	for mechanism, hash := range map[string]scram.HashGeneratorFcn{mechanism256: scram.SHA256, mechanism512: scram.SHA512} {
		c := r.dial()
		c.handshake(mechanism, 1)
		s := scramWith(t, hash, "bob", "secret bob")
		first := c.authenticate(stepOf(t, s, ""), 2)
		final := c.authenticate(stepOf(t, s, string(first.SASLAuthBytes)), 2)
		if final.ErrorCode != 0 {
			t.Fatalf("%s: code %d", mechanism, final.ErrorCode)
		}
		stepOf(t, s, string(final.SASLAuthBytes)) // the server proves that it knows the user
		if got := c.who(); got != "User:bob" {
			t.Errorf("%s: the client is %s", mechanism, got)
		}
	}
}

// After SaslHandshake version 0 tokens have no header.
func TestSaslBareTokens(t *testing.T) {
	r := newSaslRig(t)
	c := r.dial()
	c.handshake("PLAIN", 0)
	if got := c.bare("\x00ann\x00secret ann"); got != "" {
		t.Errorf("PLAIN answers %q", got)
	}
	if got := c.who(); got != "User:ann" {
		t.Errorf("the client is %s", got)
	}
	c = r.dial()
	c.handshake(mechanism256, 0)
	s := scramWith(t, scram.SHA256, "bob", "secret bob")
	stepOf(t, s, c.bare(stepOf(t, s, c.bare(stepOf(t, s, "")))))
	if got := c.who(); got != "User:bob" {
		t.Errorf("the client is %s", got)
	}
	for _, token := range []string{"", "\x00ann\x00wrong", "garbage", "\x00\x12\x00\x03"} {
		c = r.dial()
		c.handshake("PLAIN", 0)
		c.write(bigEndian(len(token), token))
		if got := c.closed(); len(got) > 0 {
			t.Errorf("token %q is answered with %q", token, got)
		}
	}
}

// Whoever does not prove who it is is told only that, and sent away.
func TestSaslRefuses(t *testing.T) {
	r := newSaslRig(t)
	c := r.dial()
	if h := c.handshake("GSSAPI", 1); h.ErrorCode != kerr.UNSUPPORTED_SASL_MECHANISM || !slices.Equal(h.SupportedMechanisms, Mechanisms()) {
		t.Errorf("an unknown mechanism: %+v", h)
	}
	c.closed()
	var messages []string
	for _, token := range []string{"\x00ann\x00wrong", "\x00nobody\x00secret ann", "\x00ann\x00", "\x00\x00secret ann", "", "ann\x00secret ann",
		"bob\x00ann\x00secret ann", "\x00ann\x00secret ann\x00more", "\x00ann\xff\x00secret ann"} {
		c := r.dial()
		c.handshake("PLAIN", 1)
		a := c.authenticate(token, 2)
		if a.ErrorCode != kerr.SASL_AUTHENTICATION_FAILED || a.ErrorMessage == nil {
			t.Fatalf("token %q: code %d", token, a.ErrorCode)
		}
		messages = append(messages, *a.ErrorMessage)
		c.closed()
	}
	if slices.Sort(messages); messages[0] != messages[len(messages)-1] {
		t.Errorf("clients are told what was wrong: %q", messages)
	}
	r.lines.await(t, "wants to be another user")
	for _, token := range []string{"", "garbage", "n,,n=nobody,r=abc", "n,a=ann,n=bob,r=abc", "p=tls-unique,,n=bob,r=abc", "n,,n=b=3ob,r=abc"} {
		c := r.dial()
		c.handshake(mechanism512, 1)
		if a := c.authenticate(token, 0); a.ErrorCode != kerr.SASL_AUTHENTICATION_FAILED {
			t.Errorf("token %q: code %d", token, a.ErrorCode)
		}
		c.closed()
	}
	c = r.dial()
	c.handshake(mechanism256, 1)
	s := scramWith(t, scram.SHA256, "bob", "wrong")
	first := c.authenticate(stepOf(t, s, ""), 2)
	if a := c.authenticate(stepOf(t, s, string(first.SASLAuthBytes)), 2); a.ErrorCode != kerr.SASL_AUTHENTICATION_FAILED {
		t.Errorf("a wrong proof: code %d", a.ErrorCode)
	}
	c.closed()
}

// Before it has proved who it is a client may not ask for anything else.
func TestSaslOrder(t *testing.T) {
	r := newSaslRig(t)
	token := kmsg.NewPtrSASLAuthenticateRequest()
	hand := kmsg.NewPtrSASLHandshakeRequest()
	hand.Mechanism = "PLAIN"
	for _, c := range []struct {
		name  string
		begin bool // by a handshake
		send  []byte
		code  int16
	}{
		{"another request", false, frameOf(kmsg.NewPtrCreateTopicsRequest(), 5, 42), -1},
		{"another request in an exchange", true, frameOf(kmsg.NewPtrCreateTopicsRequest(), 5, 42), -1},
		{"one that cannot be read", false, bigEndian(12, int16(0), int16(9), 1, int16(-1), int16(-1)), -1},
		{"a token before the handshake", false, frameOf(token, 2, 42), kerr.ILLEGAL_SASL_STATE},
		{"a handshake in an exchange", true, frameOf(hand, 1, 42), kerr.ILLEGAL_SASL_STATE},
		{"versions in an exchange", true, frameOf(kmsg.NewPtrApiVersionsRequest(), 0, 42), kerr.ILLEGAL_SASL_STATE},
		{"a large one", false, bigEndian(defaultEarlyRequestBytesMax + 1), -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := r.dial()
			if c.begin {
				client.handshake(mechanism256, 1)
			}
			client.write(c.send)
			got := client.closed()
			switch {
			case c.code == -1 && len(got) > 0:
				t.Errorf("an answer of %d bytes", len(got))
			case c.code == kerr.ILLEGAL_SASL_STATE && !bytes.Contains(got, binary.BigEndian.AppendUint16(nil, uint16(c.code))):
				t.Errorf("an answer without the code: %x", got)
			}
		})
	}
	r.lines.await(t, "a request of 65537 bytes: 8 to 65536 are possible")
}

// Where that is asked for a client proves again who it is, and cannot become another.
func TestSaslAgain(t *testing.T) {
	r := newSaslRig(t, func(o *Options) { o.ReauthAfter = time.Hour })
	begin := func() *testClient {
		c := r.dial()
		c.handshake("PLAIN", 1)
		if a := c.authenticate("\x00ann\x00secret ann", 1); a.ErrorCode != 0 || a.SessionLifetimeMillis <= 0 || a.SessionLifetimeMillis > time.Hour.Milliseconds() {
			t.Fatalf("%+v", a)
		}
		return c
	}
	c := begin()
	c.handshake("PLAIN", 1)
	if a := c.authenticate("\x00ann\x00secret ann", 1); a.ErrorCode != 0 || c.who() != "User:ann" {
		t.Errorf("again: code %d", a.ErrorCode)
	}
	c.handshake("PLAIN", 1)
	if a := c.authenticate("\x00bob\x00secret bob", 1); a.ErrorCode != kerr.SASL_AUTHENTICATION_FAILED {
		t.Errorf("as another user: code %d", a.ErrorCode)
	}
	c.closed()
	c = begin()
	c.handshake(mechanism256, 1)
	if a := c.authenticate("n,,n=ann,r=abc", 1); a.ErrorCode != kerr.SASL_AUTHENTICATION_FAILED {
		t.Errorf("by another mechanism: code %d", a.ErrorCode)
	}
	c.closed()
	c = begin()
	c.handshake("PLAIN", 1)
	c.write(frameOf(kmsg.NewPtrCreateTopicsRequest(), 5, 1))
	if got := c.closed(); len(got) > 0 {
		t.Error("a request in the middle was answered")
	}

	r = newSaslRig(t, func(o *Options) { o.ReauthAfter = time.Nanosecond })
	c = r.dial()
	c.handshake("PLAIN", 1)
	c.authenticate("\x00ann\x00secret ann", 1)
	c.write(frameOf(kmsg.NewPtrCreateTopicsRequest(), 5, 1))
	if got := c.closed(); len(got) > 0 {
		t.Error("a request after the session's end was answered")
	}
}

// A listener without SASL says so, and serves on.
func TestNoSasl(t *testing.T) {
	r := newConnRig(t)
	r.Serve()
	c := r.dial()
	if h := c.handshake("PLAIN", 1); h.ErrorCode != kerr.ILLEGAL_SASL_STATE {
		t.Errorf("handshake: code %d", h.ErrorCode)
	}
	if a := c.authenticate("\x00ann\x00secret ann", 2); a.ErrorCode != kerr.ILLEGAL_SASL_STATE || a.ErrorMessage == nil {
		t.Errorf("token: code %d", a.ErrorCode)
	}
	if v := ask[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest(), 0); v.ErrorCode != 0 {
		t.Errorf("afterwards: code %d", v.ErrorCode)
	}
}

// Users by client: each kind of change and of error.
func TestAlterUsers(t *testing.T) {
	r := newConnRig(t)
	r.Serve()
	c := r.dial()
	up := func(name string, mechanism int8, iterations int32) kmsg.AlterUserSCRAMCredentialsRequestUpsertion {
		return kmsg.AlterUserSCRAMCredentialsRequestUpsertion{Name: name, Mechanism: mechanism, Iterations: iterations, Salt: []byte("salt"), SaltedPassword: []byte("salted")}
	}
	down := func(name string, mechanism int8) kmsg.AlterUserSCRAMCredentialsRequestDeletion {
		return kmsg.AlterUserSCRAMCredentialsRequestDeletion{Name: name, Mechanism: mechanism}
	}
	alter := func(deletions []kmsg.AlterUserSCRAMCredentialsRequestDeletion, upsertions ...kmsg.AlterUserSCRAMCredentialsRequestUpsertion) map[string]int16 {
		q := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
		q.Deletions, q.Upsertions = deletions, upsertions
		codes := map[string]int16{}
		for _, result := range ask[*kmsg.AlterUserSCRAMCredentialsResponse](c, q, 0).Results {
			codes[result.User] = result.ErrorCode
		}
		return codes
	}
	bare := up("bare", 1, 5000)
	bare.SaltedPassword = nil
	got := alter(
		[]kmsg.AlterUserSCRAMCredentialsRequestDeletion{down("gone", 1), down("twice", 1)},
		up("ann", 1, 5000), up("bob", 2, 16384), up("few", 1, 4095), up("many", 1, 16385), up("odd", 3, 5000), up("", 1, 5000),
		up("twice", 1, 5000), up("both", 1, 5000), up("both", 2, 5000), bare)
	want := map[string]int16{"gone": kerr.RESOURCE_NOT_FOUND, "ann": 0, "bob": 0, "few": kerr.UNACCEPTABLE_CREDENTIAL, "many": kerr.UNACCEPTABLE_CREDENTIAL,
		"odd": kerr.UNSUPPORTED_SASL_MECHANISM, "": kerr.UNACCEPTABLE_CREDENTIAL, "twice": kerr.DUPLICATE_RESOURCE, "both": kerr.DUPLICATE_RESOURCE,
		"bare": kerr.UNACCEPTABLE_CREDENTIAL}
	for name, code := range want {
		if got[name] != code {
			t.Errorf("user %q: code %d, want %d", name, got[name], code)
		}
	}
	describe := func(names ...string) map[string]kmsg.DescribeUserSCRAMCredentialsResponseResult {
		q := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
		for _, name := range names {
			q.Users = append(q.Users, kmsg.DescribeUserSCRAMCredentialsRequestUser{Name: name})
		}
		out := map[string]kmsg.DescribeUserSCRAMCredentialsResponseResult{}
		for _, result := range ask[*kmsg.DescribeUserSCRAMCredentialsResponse](c, q, 0).Results {
			out[result.User] = result
		}
		return out
	}
	all := describe()
	if len(all) != 2 || len(all["bob"].CredentialInfos) != 1 || all["bob"].CredentialInfos[0].Mechanism != 2 || all["bob"].CredentialInfos[0].Iterations != 16384 {
		t.Errorf("users: %+v", all)
	}
	some := describe("ann", "nobody", "bob", "bob")
	if some["ann"].ErrorCode != 0 || some["nobody"].ErrorCode != kerr.RESOURCE_NOT_FOUND || some["bob"].ErrorCode != kerr.DUPLICATE_RESOURCE {
		t.Errorf("asked for: %+v", some)
	}
	if codes := alter([]kmsg.AlterUserSCRAMCredentialsRequestDeletion{down("ann", 1), down("bob", 1)}); codes["ann"] != 0 || codes["bob"] != kerr.RESOURCE_NOT_FOUND {
		t.Errorf("deleted: %v", codes)
	}
	r.store.failWith(kerr.Errorf(kerr.NOT_CONTROLLER, "elsewhere"))
	if codes := alter(nil, up("ann", 1, 5000)); codes["ann"] != kerr.NOT_CONTROLLER {
		t.Errorf("the store does not answer: %v", codes)
	}
}

// What is kept of a user does not change its form, and what is damaged is no user.
func TestCredentialEncoding(t *testing.T) {
	salted, err := saltPassword(mechanism256, "pencil", []byte("salt"), 4096)
	if err != nil {
		t.Fatal(err)
	}
	c := credentialOf(mechanism256, []byte("salt"), salted, 4096)
	golden(t, "credential", c.encode())
	got, err := decodeCredential(c.encode())
	if err != nil || got.iterations != c.iterations || !bytes.Equal(got.salt, c.salt) || !bytes.Equal(got.storedKey, c.storedKey) || !bytes.Equal(got.serverKey, c.serverKey) {
		t.Errorf("decoded %+v: %v", got, err)
	}
	for n := range c.encode() {
		if _, err := decodeCredential(c.encode()[:n]); !errors.Is(err, errUserEncoding) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	if _, err := decodeCredential(append(c.encode(), 0)); !errors.Is(err, errUserEncoding) {
		t.Errorf("a byte too much: %v", err)
	}
	r := newSaslRig(t)
	if err := r.store.SetEntries(t.Context(), kindUser, map[string][]byte{userEntry(mechanism512, "ann"): {9}}); err != nil {
		t.Fatal(err)
	}
	client := r.dial()
	client.handshake(mechanism512, 1)
	if a := client.authenticate("n,,n=ann,r=abc", 1); a.ErrorCode != kerr.SASL_AUTHENTICATION_FAILED {
		t.Errorf("a damaged user: code %d", a.ErrorCode)
	}
	r.lines.await(t, "cannot be read")
}

// Users that cannot be are refused.
func TestSetUser(t *testing.T) {
	s := &memoryStore{}
	for _, c := range []struct{ name, password string }{{"", "x"}, {"x", ""}, {string(make([]byte, userNameMax+1)), "x"}, {"x", string(make([]byte, passwordMax+1))}} {
		if err := SetUser(t.Context(), s, c.name, c.password); err == nil {
			t.Errorf("a name of %d bytes and a password of %d were taken", len(c.name), len(c.password))
		}
	}
	if err := SetUser(t.Context(), s, "ann", "x"); err != nil || len(s.Entries(kindUser)) != 2 {
		t.Errorf("%d entries: %v", len(s.Entries(kindUser)), err)
	}
	if err := DeleteUser(t.Context(), s, "ann"); err != nil || len(s.Entries(kindUser)) != 0 {
		t.Errorf("%d entries left: %v", len(s.Entries(kindUser)), err)
	}
}

// Any bytes as tokens are an answer or an error.
func FuzzSaslToken(f *testing.F) {
	store := &memoryStore{}
	if err := SetUser(f.Context(), store, "ann", "secret"); err != nil {
		f.Fatal(err)
	}
	s, err := Open(Options{Broker: newAdminBroker(), Store: store, Listeners: []Listener{{Address: "127.0.0.1:0", SASL: Mechanisms()}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	f.Add(0, []byte("\x00ann\x00secret"), []byte{})
	f.Add(1, []byte("n,,n=ann,r=abc"), []byte("c=biws,r=abc,p=AAAA"))
	f.Add(2, []byte("n,a=ann,n=ann,r=abc,x=y"), []byte("c=biws,r=abc"))
	f.Fuzz(func(t *testing.T, which int, first, second []byte) {
		x := s.newExchange(Mechanisms()[uint(which)%3])
		for _, token := range [][]byte{first, second} {
			got, err := x.step(t.Context(), token)
			if err != nil {
				return
			}
			if got.done {
				if got.user != "ann" {
					t.Errorf("a client became %q", got.user)
				}
				return
			}
		}
	})
}

// There are no quotas, which is not the same as no answer.
func TestDescribeClientQuotas(t *testing.T) {
	r := newConnRig(t, func(o *Options) { o.Authorize, o.SuperUsers = true, []string{userPrefix + "ann"} })
	r.Serve()
	for version := range int16(2) {
		if a := ask[*kmsg.DescribeClientQuotasResponse](r.dial(), kmsg.NewPtrDescribeClientQuotasRequest(), version); a.ErrorCode != kerr.CLUSTER_AUTHORIZATION_FAILED {
			t.Errorf("version %d without leave: code %d", version, a.ErrorCode)
		}
	}
	r = newConnRig(t)
	r.Serve()
	for version := range int16(2) {
		if a := ask[*kmsg.DescribeClientQuotasResponse](r.dial(), kmsg.NewPtrDescribeClientQuotasRequest(), version); a.ErrorCode != 0 || a.Entries == nil || len(a.Entries) > 0 {
			t.Errorf("version %d: %+v", version, a)
		}
	}
}
