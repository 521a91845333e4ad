package lint

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// row says what a package may import. Patterns are import paths: ours from the
// module's root ("." is the root package), with "/..." for all below, others as
// they are, which includes what is below.
type row struct {
	folder string
	// ours lists the module's packages.
	ours []string
	// others lists packages of other modules.
	others []string
	// never lists packages of the standard library.
	never []string
	// testOurs and testOthers are allowed in test files besides.
	testOurs, testOthers []string
}

// testTools are modules that any test may use.
var testTools = []string{
	"go.uber.org/goleak", "pgregory.net/rapid", "github.com/cockroachdb/datadriven",
	"github.com/anishathalye/porcupine", "github.com/cockroachdb/pebble/v2/vfs",
}

// table is who may import whom. The most special row of a folder counts. Lower
// layers know nothing of upper ones; only the root wires; only replication knows
// dragonboat and memberlist.
var table = []row{
	{folder: ".",
		ours:       []string{"segment", "replication", "group/...", "transport/...", "internal/..."},
		others:     []string{"github.com/cespare/xxhash/v2", "github.com/prometheus/client_golang", "golang.org/x/sys"},
		testOthers: []string{"github.com/twmb/franz-go"}},
	{folder: "segment",
		ours:       []string{"internal/..."},
		others:     []string{"github.com/cespare/xxhash/v2", "golang.org/x/sys"},
		never:      []string{"net"},
		testOthers: []string{"github.com/twmb/franz-go/pkg/kmsg"}},
	{folder: "replication",
		ours: []string{"segment", "transport", "internal/..."},
		others: []string{"github.com/lni/dragonboat/v4", "github.com/hashicorp/memberlist", "github.com/lni/vfs",
			"github.com/cespare/xxhash/v2", "golang.org/x/sys", "github.com/twmb/franz-go/pkg/kmsg"}},
	{folder: "group",
		ours:   []string{"internal/..."},
		others: []string{"github.com/twmb/franz-go/pkg/kmsg"},
		never:  []string{"net", "os"}},
	{folder: "group/txn",
		ours:   []string{"group", "internal/..."},
		others: []string{"github.com/twmb/franz-go/pkg/kmsg"},
		never:  []string{"net", "os"}},
	{folder: "transport",
		ours:   []string{"internal/..."},
		others: []string{"github.com/cespare/xxhash/v2"}},
	{folder: "transport/kafka",
		ours:       []string{"transport", "internal/batch", "internal/invariants", "internal/kerr"},
		others:     []string{"github.com/twmb/franz-go/pkg/kmsg", "github.com/xdg-go/scram", "golang.org/x/sync", "golang.org/x/sys"},
		testOurs:   []string{"internal/..."},
		testOthers: []string{"github.com/twmb/franz-go"}},
	{folder: "internal/batch",
		ours:       []string{"internal/invariants"},
		others:     []string{"github.com/klauspost/compress", "github.com/pierrec/lz4/v4", "github.com/cespare/xxhash/v2"},
		testOthers: []string{"github.com/twmb/franz-go/pkg/kmsg", "github.com/twmb/franz-go/pkg/kgo"}},
	{folder: "internal/vfs",
		ours:   []string{"internal/invariants"},
		others: []string{"golang.org/x/sys"}},
	{folder: "internal/invariants"},
	// What makes a node a broker of Kafka's: the root has nothing else to do with its messages.
	{folder: "internal/broker",
		ours:       []string{"replication", "segment", "group", "transport/kafka", "internal/..."},
		others:     []string{"github.com/twmb/franz-go/pkg/kmsg"},
		testOthers: []string{"github.com/twmb/franz-go"}},
	{folder: "internal/*",
		ours:     []string{"internal/invariants"},
		testOurs: []string{"internal/..."}},
	// Examples and benchmarks are outsiders: what they need, users need.
	{folder: "examples/...",
		ours: []string{"."}},
	{folder: "examples/billetd",
		ours:       []string{".", "transport"},
		others:     []string{"github.com/prometheus/client_golang", "go.yaml.in/yaml/v3"},
		testOthers: []string{"github.com/twmb/franz-go"}},
	{folder: "bench/...",
		ours:       []string{".", "segment", "replication", "transport"},
		testOthers: []string{"github.com/twmb/franz-go"}},
	{folder: "bench/peers",
		ours:   []string{"."},
		others: []string{"github.com/nats-io", "github.com/synadia-io/orbit.go", "github.com/lni/dragonboat/v4", "golang.org/x/sys"}},
	{folder: "interop/...",
		ours:   []string{"."},
		others: []string{"github.com/twmb/franz-go"}},
}

// findRow returns the row of a folder: an exact one, else the longest pattern.
func findRow(folder string) *row {
	var best *row
	for i := range table {
		r := &table[i]
		if r.folder == folder {
			return r
		}
		if matchFolder(r.folder, folder) && (best == nil || len(r.folder) > len(best.folder)) {
			best = r
		}
	}
	return best
}

// matchFolder matches "a/*" with what is directly in a, "a/..." with a and what
// is below.
func matchFolder(pattern, folder string) bool {
	if above, ok := strings.CutSuffix(pattern, "/..."); ok {
		return under(folder, above)
	}
	if above, ok := strings.CutSuffix(pattern, "/*"); ok {
		return path.Dir(folder) == above
	}
	return pattern == folder
}

func matchAny(patterns []string, folder string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matchFolder(p, folder) })
}

func underAny(patterns []string, importPath string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return under(importPath, p) })
}

// checkImports holds a file against the table.
func checkImports(s *source) []finding {
	if !s.isGo() {
		return nil
	}
	r := findRow(s.dir())
	if r == nil {
		return []finding{s.at(s.file.Package, "%s is in no row of the import table: add one, from what the package is for", s.dir())}
	}
	ours, others := r.ours, r.others
	if s.isTest() {
		ours = slices.Concat(ours, r.testOurs, []string{s.dir()})
		others = slices.Concat(others, r.testOthers, testTools)
	}
	var found []finding
	for _, spec := range s.file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		switch mine, isOurs := ownFolder(p); {
		case isOurs && !matchAny(ours, mine):
			found = append(found, s.at(spec.Pos(), "%s must not import %s of this module", s.dir(), mine))
		case !isOurs && isStandard(p) && !s.isTest() && underAny(r.never, p):
			found = append(found, s.at(spec.Pos(), "%s must not import %s", s.dir(), p))
		case !isOurs && !isStandard(p) && !underAny(others, p):
			found = append(found, s.at(spec.Pos(), "%s must not import %s", s.dir(), p))
		}
	}
	return found
}

// ownFolder returns the folder of a package of this module.
func ownFolder(importPath string) (string, bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

// isStandard tells packages of the standard library, and "C".
func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

func TestImports(t *testing.T) {
	var found []finding
	for _, s := range sources(t) {
		found = append(found, checkImports(s)...)
	}
	report(t, found)
}

func TestImportsCanFail(t *testing.T) {
	file := func(imports ...string) string {
		text := "package p\n"
		for _, p := range imports {
			text += "import _ \"" + p + "\"\n"
		}
		return text
	}
	const (
		dragonboat = "github.com/lni/dragonboat/v4"
		memberlist = "github.com/hashicorp/memberlist"
		kmsg       = "github.com/twmb/franz-go/pkg/kmsg"
	)
	try(t, checkImports, []example{
		{"root wires", "log.go", file("context", modulePath+"/segment", modulePath+"/replication", modulePath+"/internal/batch"), nil},
		{"root and raft", "log.go", file(dragonboat+"/config", memberlist, kmsg), []string{"log.go:2: . must not import github.com/lni", "memberlist", "kmsg"}},
		{"root and other", "log.go", file("example.com/other"), []string{"example.com/other"}},
		{"root test", "log_test.go", file("github.com/twmb/franz-go/pkg/kgo", "go.uber.org/goleak"), nil},
		{"root test and raft", "log_test.go", file(dragonboat), []string{"must not import"}},
		{"segment and root", "segment/log.go", file(modulePath), []string{"segment must not import . of"}},
		{"segment and sibling", "segment/log_test.go", file(modulePath + "/replication"), []string{"must not import replication"}},
		{"segment and net", "segment/log.go", file("net/http", "os"), []string{"net/http"}},
		{"segment test", "segment/log_test.go", file("net", modulePath+"/segment", modulePath+"/internal/vfs"), nil},
		{"replication", "replication/host.go", file(dragonboat+"/raftio", memberlist, modulePath+"/segment"), nil},
		{"replication and up", "replication/host.go", file(modulePath, modulePath+"/group", modulePath+"/transport/kafka"), []string{". of", "group", "transport/kafka"}},
		{"group", "group/coordinator.go", file("os", modulePath+"/internal/batch"), []string{"must not import os"}},
		{"transport", "transport/tcp.go", file("net", modulePath+"/segment"), []string{"segment"}},
		{"wire", "transport/kafka/conn.go", file(kmsg, modulePath+"/transport", modulePath+"/internal/vfs"), []string{"internal/vfs"}},
		{"internal and up", "internal/batch/batch.go", file(modulePath+"/internal/invariants", modulePath+"/segment"), []string{"segment"}},
		{"internal new", "internal/clock/clock.go", file(modulePath+"/internal/invariants", modulePath+"/internal/vfs"), []string{"internal/vfs"}},
		{"example", "examples/quickstart/main.go", file(modulePath, modulePath+"/internal/batch", modulePath+"/segment"), []string{"internal/batch", "segment"}},
		{"bench", "bench/append_test.go", file(modulePath, modulePath+"/internal/batch"), []string{"internal/batch"}},
		{"peers", "bench/peers/main.go", file(modulePath, "github.com/nats-io/nats.go", dragonboat, modulePath+"/segment"), []string{"segment"}},
		{"no row", "util/util.go", file(), []string{"no row"}},
	})
}
