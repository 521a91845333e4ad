package kafka

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kversion"
)

var updateMatrix = flag.Bool("update", false, "write docs/kafka.md's table anew, with the notes that it has")

const matrixDocument = "../../docs/kafka.md"

// matrixRow is a row of the table: what the server does about a kind of request.
type matrixRow struct {
	key                    int16
	name, versions, theirs string
	notes                  string
}

func (r matrixRow) String() string {
	return fmt.Sprintf("| %d | %s | %s | %s | %s |", r.key, r.name, r.versions, r.theirs, r.notes)
}

// matrixOf is the table as api.go has it.
func matrixOf(apis []api) (rows []matrixRow) {
	kafka := kversion.V4_3_0()
	for _, a := range apis {
		r := matrixRow{key: a.key.Int16(), name: kafkaName(a.key.Name()), versions: versionRange(a.advertisedMin, a.max), theirs: "-"}
		if a.min != a.advertisedMin {
			r.versions += fmt.Sprintf(" (from %d on served)", a.min)
		}
		if top, ok := kafka.LookupMaxKeyVersion(r.key); ok {
			r.theirs = fmt.Sprintf("to %d", top)
		}
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(x, y matrixRow) int { return int(x.key) - int(y.key) })
	return rows
}

// kafkaName is the name that Kafka has for a request, where kmsg has another spelling.
func kafkaName(name string) string {
	return strings.NewReplacer("SASL", "Sasl", "SCRAM", "Scram", "ACL", "Acl", "ProducerID", "ProducerId", "PartitionAssignments", "PartitionReassignments").Replace(name)
}

func versionRange(low, high int16) string {
	if low == high {
		return strconv.Itoa(int(low))
	}
	return fmt.Sprintf("%d-%d", low, high)
}

var matrixLine = regexp.MustCompile(`^\| (\d+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$`)

// readMatrix finds the table in the document.
func readMatrix(text string) (rows []matrixRow) {
	for line := range strings.Lines(text) {
		m := matrixLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		key, _ := strconv.ParseInt(m[1], 10, 16)
		rows = append(rows, matrixRow{int16(key), m[2], m[3], m[4], m[5]})
	}
	return rows
}

// docs/kafka.md lists what the table in api.go has. With -update it is written so.
func TestMatrix(t *testing.T) {
	text, err := os.ReadFile(matrixDocument)
	if err != nil {
		t.Fatal(err)
	}
	documented := readMatrix(string(text))
	want := matrixOf(apis())
	for i := range want {
		if j := slices.IndexFunc(documented, func(r matrixRow) bool { return r.key == want[i].key }); j >= 0 {
			want[i].notes = documented[j].notes
		}
	}
	if *updateMatrix {
		writeMatrix(t, string(text), want)
		return
	}
	for i := range max(len(want), len(documented)) {
		switch {
		case i >= len(documented):
			t.Errorf("docs/kafka.md lacks %v", want[i])
		case i >= len(want):
			t.Errorf("docs/kafka.md has %v, which is not served", documented[i])
		case documented[i] != want[i]:
			t.Errorf("docs/kafka.md says\n%v\nand the table in api.go\n%v\n(go test ./transport/kafka -run TestMatrix -update writes it)", documented[i], want[i])
		case strings.TrimSpace(want[i].notes) == "":
			t.Errorf("docs/kafka.md has no notes on %s", want[i].name)
		}
	}
}

// writeMatrix puts rows in the place of the table's.
func writeMatrix(t *testing.T, text string, rows []matrixRow) {
	t.Helper()
	var out strings.Builder
	written := false
	for line := range strings.Lines(text) {
		if !matrixLine.MatchString(strings.TrimSpace(line)) {
			out.WriteString(line)
			continue
		}
		for _, r := range rows {
			if !written {
				out.WriteString(r.String() + "\n")
			}
		}
		written = true
	}
	if err := os.WriteFile(matrixDocument, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Each kind of request has a file of its own, named by its key, and each such file is of
// one that is served.
func TestFilesAreTheMatrix(t *testing.T) {
	files, err := filepath.Glob("[0-9][0-9]_*.go")
	if err != nil {
		t.Fatal(err)
	}
	have := map[int16][]string{}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		key, err := strconv.ParseInt(f[:2], 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		have[int16(key)] = append(have[int16(key)], f)
	}
	for key, a := range newAPITable() {
		if len(have[key]) == 0 {
			t.Errorf("%s, key %d, has no file", a.key.Name(), key)
		}
		delete(have, key)
	}
	for key, files := range have {
		t.Errorf("%v is of key %d, which is not served", files, key)
	}
	if keys := len(newAPITable()); keys != len(apis()) {
		t.Errorf("%d keys in a table of %d", keys, len(apis()))
	}
}

// What the document's table says is compared, each part of it.
func TestMatrixCanFail(t *testing.T) {
	row := matrixRow{3, "Metadata", "0-12", "to 13", "all topics"}
	if got := readMatrix("text\n" + row.String() + "\n| a | b |\n"); len(got) != 1 || got[0] != row {
		t.Fatalf("%v", got)
	}
	if versionRange(1, 1) != "1" || versionRange(1, 2) != "1-2" {
		t.Error("ranges")
	}
}
