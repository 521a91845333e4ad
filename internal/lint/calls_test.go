package lint

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// forbidden says why a library must not use a function or variable, by import
// path and name; "*" is for all names of a package. The host process is not
// ours: it decides what is printed, when it ends and what a signal means.
var forbidden = map[string]map[string]string{
	"os": {
		"Exit": "return an error: only the host decides to end", "Getwd": "take paths from Config only",
		"Chdir":  "the working directory is the host's",
		"Getenv": "take settings from Config only", "LookupEnv": "take settings from Config only",
		"Environ": "take settings from Config only", "Setenv": "the environment is the host's",
		"Unsetenv": "the environment is the host's", "Args": "the command line is the host's",
		"Stdout": "output goes through Config.Logger", "Stderr": "output goes through Config.Logger",
		"Stdin": "input is the host's",
	},
	"os/signal": {"*": "signals are the host's"},
	"flag":      {"*": "the command line is the host's"},
	"log":       {"*": "output goes through Config.Logger"},
	"fmt": {
		"Print": "output goes through Config.Logger", "Printf": "output goes through Config.Logger",
		"Println": "output goes through Config.Logger", "Scan": "input is the host's",
		"Scanf": "input is the host's", "Scanln": "input is the host's",
	},
	"log/slog": {
		"Default": "use Config.Logger", "SetDefault": "the default logger is the host's",
		"Debug": "use Config.Logger", "Info": "use Config.Logger", "Warn": "use Config.Logger",
		"Error": "use Config.Logger", "Log": "use Config.Logger", "LogAttrs": "use Config.Logger",
		"DebugContext": "use Config.Logger", "InfoContext": "use Config.Logger",
		"WarnContext": "use Config.Logger", "ErrorContext": "use Config.Logger",
	},
	"time": {
		"Sleep": "wait for an event, a timer and a context: a sleep cannot be ended",
		"Tick":  "its ticker cannot be stopped: use time.NewTicker",
	},
	"net/http": {
		"DefaultServeMux": "it is the host's", "Handle": "it changes http.DefaultServeMux",
		"HandleFunc": "it changes http.DefaultServeMux", "DefaultClient": "it is the host's",
		"DefaultTransport": "it is the host's",
	},
	"net/http/pprof": {"*": "it changes http.DefaultServeMux"},
	"expvar":         {"*": "it publishes in the host's name"},
	"runtime": {
		"GC": "the garbage collector is the host's", "GOMAXPROCS": "the scheduler is the host's",
	},
	"runtime/debug": {
		"SetGCPercent": "the garbage collector is the host's", "SetMemoryLimit": "the garbage collector is the host's",
		"SetMaxThreads": "the runtime is the host's", "SetPanicOnFault": "the runtime is the host's",
		"FreeOSMemory": "the garbage collector is the host's", "PrintStack": "output goes through Config.Logger",
	},
	"math/rand": {"*": "its state is global and can be seeded by others: use math/rand/v2"},
}

// forbiddenIn adds what single folders must not use, besides what the import
// table says.
var forbiddenIn = map[string]map[string]map[string]string{
	"group": {"time": {"Now": "a pure core takes the time as an argument"}},
}

// forbiddenBuiltins are those of the language.
var forbiddenBuiltins = map[string]string{
	"panic": "return an error: a library must not take the host down", "print": "output goes through Config.Logger",
	"println": "output goes through Config.Logger",
}

// callExceptions are calls that are right where they are: "file: function: call".
var callExceptions = newExceptions([]exception{
	{"internal/invariants/on.go: Check: panic", "compiled only into tests, with the race detector or the build tag"},
	{"replication/raftlog.go: raftLogger.Panicf: panic", "the last line for dragonboat's own faults, which must not return to it; only without a node to report to"},
})

// checkCalls looks for what a library must not use.
func checkCalls(s *source) []finding {
	if !s.isLibrary() {
		return nil
	}
	imports := s.imports()
	var found []finding
	for _, decl := range s.file.Decls {
		where := "package"
		if d, ok := decl.(*ast.FuncDecl); ok {
			where = funcName(d)
			if d.Recv == nil && d.Name.Name == "init" && !callExceptions.allow(s.path+": init: init") {
				found = append(found, s.at(d.Pos(), "init runs in every host that imports the package: make a value where it is needed"))
			}
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			pos, name, why := forbiddenUse(s, imports, n)
			if why != "" && !callExceptions.allow(s.path+": "+where+": "+name) {
				found = append(found, s.at(pos, "%s uses %s: %s", where, name, why))
			}
			return true
		})
	}
	return found
}

// forbiddenUse returns the name of what a node uses and why it must not. Names
// that the file declares itself are none of them.
func forbiddenUse(s *source, imports map[string]string, n ast.Node) (pos token.Pos, name, why string) {
	switch x := n.(type) {
	case *ast.CallExpr:
		if id, ok := x.Fun.(*ast.Ident); ok && id.Obj == nil {
			return id.Pos(), id.Name, forbiddenBuiltins[id.Name]
		}
	case *ast.SelectorExpr:
		id, ok := x.X.(*ast.Ident)
		if !ok || id.Obj != nil {
			return 0, "", ""
		}
		p, ok := imports[id.Name]
		if !ok {
			return 0, "", ""
		}
		name = p + "." + x.Sel.Name
		for folder, more := range forbiddenIn {
			if under(s.path, folder) && more[p][x.Sel.Name] != "" {
				return id.Pos(), name, more[p][x.Sel.Name]
			}
		}
		if all := forbidden[p]["*"]; all != "" {
			return id.Pos(), name, all
		}
		return id.Pos(), name, forbidden[p][x.Sel.Name]
	}
	return 0, "", ""
}

func TestCalls(t *testing.T) {
	var found []finding
	for _, s := range sources(t) {
		found = append(found, checkCalls(s)...)
	}
	report(t, append(found, callExceptions.unused("internal/lint/calls_test.go")...))
}

func TestCallsCanFail(t *testing.T) {
	file := func(imports, body string) string {
		text := "package p\n"
		for p := range strings.FieldsSeq(imports) {
			text += "import \"" + p + "\"\n"
		}
		return text + body + "\n"
	}
	try(t, checkCalls, []example{
		{"good", "a.go", file("fmt os time", "func f() { _ = fmt.Sprint(1); _, _ = os.Open(\"\"); time.AfterFunc(1, f) }"), nil},
		{"panic", "a.go", file("", "func f() { panic(1) }"), []string{"a.go:2: f uses panic"}},
		{"own panic", "a.go", file("", "func f() { panic := func(int) {}; panic(1) }"), nil},
		{"exit", "a.go", file("os", "func (t *T) f() { defer func() { os.Exit(1) }() }\ntype T int"), []string{"T.f uses os.Exit"}},
		{"own os", "a.go", file("os", "var _ = os.Open\nfunc f(os struct{ Exit func(int) }) { os.Exit(1) }"), nil},
		{"renamed", "a.go", "package p\nimport other \"os\"\nfunc f() { other.Exit(1) }\n", []string{"os.Exit"}},
		{"log", "a.go", file("log", "func f() { log.Fatal(1) }"), []string{"log.Fatal"}},
		{"print", "a.go", file("fmt os", "func f() { fmt.Println(1); println(1); fmt.Fprintln(os.Stderr) }"), []string{"fmt.Println", "println", "os.Stderr"}},
		{"sleep", "a.go", file("time", "var f = func() { time.Sleep(1) }"), []string{"package uses time.Sleep"}},
		{"signal", "a.go", file("os/signal", "func f() { signal.Notify(nil) }"), []string{"signal.Notify"}},
		{"mux", "a.go", file("net/http", "func f() { _ = http.DefaultServeMux }"), []string{"DefaultServeMux"}},
		{"environment", "a.go", file("os", "func f() { _ = os.Getenv(\"\") }"), []string{"os.Getenv"}},
		{"init", "a.go", file("", "func init() {}\nfunc (t T) init() {}\ntype T int"), []string{"a.go:2: init"}},
		{"default logger", "a.go", file("log/slog", "func f(l *slog.Logger) { l.Info(\"\"); slog.Info(\"\") }"), []string{"slog.Info"}},
		{"clock of a core", "group/a.go", file("time", "func f() { _ = time.Now() }"), []string{"time.Now"}},
		{"clock elsewhere", "segment/a.go", file("time", "func f() { _ = time.Now() }"), nil},
		{"test", "a_test.go", file("", "func f() { panic(1) }"), nil},
		{"program", "examples/p/main.go", "package main\nimport \"os\"\nfunc main() { os.Exit(1) }\n", nil},
		{"internal", "internal/p/a.go", file("", "func f() { panic(1) }"), []string{"panic"}},
	})
}
