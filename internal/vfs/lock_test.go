package vfs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestLock(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "lock")
		first, err := fsys.Lock(name, "a rather long holder\nof two lines")
		must(t, err)
		_, err = fsys.Lock(name, "second")
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "a rather long holder of two lines") {
			t.Fatalf("second lock: %v", err)
		}
		must(t, first.Close())
		if err := first.Close(); outcome(err) != "closed" {
			t.Errorf("second release: %v", err)
		}
		again, err := fsys.Lock(name, "short")
		must(t, err)
		if got := content(t, fsys, name); got != "short\n" {
			t.Errorf("noted %q", got)
		}
		must(t, again.Close())
		_, err = fsys.Stat(name)
		must(t, err) // the file stays
	})
}

func TestLockLongHolder(t *testing.T) {
	m := NewMem()
	lock, err := m.Lock("lock", strings.Repeat("x", 2*holderMax))
	must(t, err)
	_, err = m.Lock("lock", "")
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "xxx") {
		t.Error(err)
	}
	if clone := m.CrashClone(CrashOptions{KeepUnsynced: 1}); closedLock(clone) != nil {
		t.Error("the lock outlived a crash")
	}
	must(t, lock.Close())
}

func closedLock(fsys FS) error {
	lock, err := fsys.Lock("lock", "other")
	if err != nil {
		return err
	}
	return lock.Close()
}

const lockChildEnv = "BILLET_TEST_LOCK_CHILD"

// TestLockOfAnotherProcess lets a child process (this test again, with a file
// name in its environment) take a lock and kills it.
func TestLockOfAnotherProcess(t *testing.T) {
	if name := os.Getenv(lockChildEnv); name != "" {
		holdLock(name)
	}
	name := filepath.Join(t.TempDir(), "lock")
	child := exec.Command(os.Args[0], "-test.run=^TestLockOfAnotherProcess$")
	child.Env = append(os.Environ(), lockChildEnv+"="+name)
	stdin, err := child.StdinPipe() // the child waits for its end
	must(t, err)
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "locked\n" {
		t.Errorf("child said %q, %v", line, err)
	}
	_, err = OS.Lock(name, "parent")
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "the child") {
		t.Errorf("while the child lives: %v", err)
	}
	must(t, child.Process.Kill())
	_ = child.Wait() // it was killed
	lock, err := OS.Lock(name, "parent")
	must(t, err)
	must(t, lock.Close())
}

// holdLock is the child: it takes the lock and holds it until it dies.
func holdLock(name string) {
	if _, err := OS.Lock(name, "the child"); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("locked")
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	os.Exit(0)
}
