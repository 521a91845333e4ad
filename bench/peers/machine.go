package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// header says on what and with what the figures were measured.
func header(dir string, o options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# machine date=%s cores=%d gomaxprocs=%d cpu=%q memory_mib=%d go=%s kernel=%s filesystem=%s dir=%s load1=%s\n",
		time.Now().UTC().Format(time.RFC3339), runtime.NumCPU(), runtime.GOMAXPROCS(0), procField("/proc/cpuinfo", "model name"),
		memoryMiB(), runtime.Version(), kernel(), fileSystem(dir), dir, load1())
	fmt.Fprintf(&b, "# versions billet=%s nats-server=%s nats.go=%s jetstreamext=%s dragonboat=%s\n", revision(),
		moduleVersion("github.com/nats-io/nats-server/v2"), moduleVersion("github.com/nats-io/nats.go"),
		moduleVersion("github.com/synadia-io/orbit.go/jetstreamext"), moduleVersion("github.com/lni/dragonboat/v4"))
	fmt.Fprintf(&b, "# settings runs=%d quick=%t batch=%d cases=%q\n", o.runs, o.quick, o.batchBytes, o.cases)
	return b.String()
}

// moduleVersion returns the version of a dependency of this binary.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "?"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "?"
}

// revision returns the commit of the working directory's repository, with
// +changes if tracked files differ from it.
func revision() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty=+changes").Output()
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(out))
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "?"
	}
	return unix.ByteSliceToString(u.Release[:])
}

func memoryMiB() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return info.Totalram * uint64(info.Unit) >> 20
}

func load1() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	return strings.Fields(string(b))[0]
}

// fileSystem returns type and options of the mount that dir is on.
func fileSystem(dir string) string {
	file, err := os.Open("/proc/self/mounts")
	if err != nil {
		return "?"
	}
	defer file.Close()
	best, found := "", "?"
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 4 || len(f[1]) < len(best) {
			continue
		}
		if f[1] == "/" || dir == f[1] || strings.HasPrefix(dir, f[1]+"/") {
			best, found = f[1], f[2]+"("+f[3]+")"
		}
	}
	return found
}

// procField returns the first value of a "name: value" line in a /proc file.
func procField(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "?"
	}
	for line := range strings.Lines(string(b)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "?"
}

// statusMiB returns a size from /proc/<pid>/status in MiB: VmRSS or VmHWM.
func statusMiB(pid int, name string) (float64, error) {
	value := procField("/proc/"+strconv.Itoa(pid)+"/status", name)
	kib, err := strconv.ParseFloat(strings.TrimSuffix(value, " kB"), 64)
	if err != nil {
		return 0, fmt.Errorf("%s of process %d: %w", name, pid, err)
	}
	return kib / 1024, nil
}

// syncFS writes everything dirty on dir's file system to disk.
func syncFS(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Syncfs(int(file.Fd()))
}
