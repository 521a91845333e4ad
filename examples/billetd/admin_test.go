package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ask sends a request to what takes changes.
func ask(t *testing.T, method, url, body, host string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Host = host
	if strings.Contains(body, "evil") {
		q.Header.Set("Origin", "http://evil.example")
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// Changes are taken where -admin says so, from the machine alone, and not from web pages.
// A directory that is not open becomes the cluster by command, and another follows.
func TestAdmin(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the program")
	}
	path, dir := buildBilletd(t), t.TempDir()
	p := start(t, path, "-dir", dir, "-admin")
	client, err := kgo.NewClient(kgo.SeedBrokers(p.kafka))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, -1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path, body, host string
		code                     int
		says                     string
	}{
		{"GET", "/nodes", "", "", http.StatusOK, `"ID":1`},
		{"GET", "/nodes", "", "evil.example:80", http.StatusForbidden, "address of this machine"},
		{"POST", "/users/anna", "evil", "", http.StatusForbidden, "cross-origin"},
		{"POST", "/users/anna", "", "", http.StatusConflict, "the body must be the password"},
		{"POST", "/users/anna", "secret", "", http.StatusNoContent, ""},
		{"DELETE", "/users/anna", "", "", http.StatusNoContent, ""},
		{"POST", "/nodes/9/drain", "", "", http.StatusConflict, "unknown node"},
		{"POST", "/nodes/9/activate", "", "", http.StatusConflict, "unknown node"},
		{"POST", "/nodes/x/remove", "", "", http.StatusConflict, `"x" is no number`},
		{"POST", "/topics/orders/replicas/3", "", "", http.StatusConflict, "not enough nodes"},
		{"POST", "/topics/orders/replicas/1", "", "", http.StatusOK, `"Name":"orders"`},
		{"POST", "/topics/orders/partitions/0/recover", "", "", http.StatusConflict, "partition has its majority"},
		{"POST", "/topics/nope/partitions/0/recover", "", "", http.StatusConflict, "unknown topic"},
	} {
		if code, body := ask(t, c.method, "http://"+p.http+c.path, c.body, c.host); code != c.code || !strings.Contains(body, c.says) {
			t.Errorf("%s %s: %d %s", c.method, c.path, code, body)
		}
	}
	if code := p.stop(t, syscall.SIGTERM); code != exitOK {
		t.Fatalf("exit code %d:\n%s", code, p.output.all())
	}

	var out, errs bytes.Buffer
	if code := run([]string{"recover-cluster", "-dir", dir}, nil, &out, &errs, nil); code != exitOK {
		t.Fatalf("%d %s", code, errs.String())
	}
	generation := regexp.MustCompile(`generation (\d+)`).FindStringSubmatch(out.String())
	if generation == nil {
		t.Fatalf("recover-cluster says %s", out.String())
	}
	if code := run([]string{"follow-cluster", generation[1], "-dir", dir}, nil, &out, &errs, nil); code != exitFailed || !strings.Contains(errs.String(), "is of that generation already") {
		t.Errorf("%d %s %s", code, out.String(), errs.String())
	}
	g, err := strconv.ParseUint(generation[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	later := strconv.FormatUint(g+1, 10)
	if code := run([]string{"follow-cluster", later, "-dir", dir}, nil, &out, &errs, nil); code != exitOK || !strings.Contains(out.String(), "follows generation "+later) {
		t.Errorf("%d %s %s", code, out.String(), errs.String())
	}
	errs.Reset()
	if code := run([]string{"recover-cluster", "-dir", filepath.Join(dir, "nope")}, nil, &out, &errs, nil); code != exitFailed || !strings.Contains(errs.String(), "nope") {
		t.Errorf("a directory that is not there: %d %s", code, errs.String())
	}
}

// What stands between flags that cannot go together is said in flags.
func TestBadTogether(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-id 0", "ids begin at 1"},
		{"broker.id=0", "ids begin at 1"},
		{"-admin -http=", "-admin needs"},
		{"-cluster-cert-file a.pem", "needs all of"},
		{"-kafka 0.0.0.0:9092", "-kafka is 0.0.0.0:9092, allowed is an address of this machine only"},
		{"-kafka 0.0.0.0:9092", "-kafka-allow-anonymous"},
		{"-join 127.0.0.1:1", `-listen is ""`},
		{"-dir=", `-dir is ""`},
		{"follow-cluster", "needs the generation"},
		{"follow-cluster x", `"x" is no generation`},
	} {
		var out, errs bytes.Buffer
		if code := run(strings.Fields(c.args), nil, &out, &errs, nil); code != exitUsage || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s: %d %s", c.args, code, errs.String())
		}
	}
	var out, errs bytes.Buffer
	if code := run([]string{"-dir", t.TempDir(), "-http", "0.0.0.0:0", "-admin", "-kafka="}, nil, &out, &errs, make(chan os.Signal)); code != exitFailed || !strings.Contains(errs.String(), "others could make changes") {
		t.Errorf("changes from everywhere: %d %s", code, errs.String())
	}
}

// A signal that comes to the process and to its group is one.
func TestSignalsApart(t *testing.T) {
	for gap, want := range map[time.Duration]int{time.Hour: 1, 0: 2} {
		signals := make(chan os.Signal, 2)
		signals <- syscall.SIGTERM
		signals <- syscall.SIGTERM
		close(signals)
		n := 0
		for range apart(signals, gap) {
			n++
		}
		if n != want {
			t.Errorf("%d signals less than %v apart", n, gap)
		}
	}
}
