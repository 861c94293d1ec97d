package checkpoint_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/checkpoint"
)

const lockChildEnv = "CHECKPOINT_TEST_LOCK_DIR"

// heldLock keeps the child's lock: a lock that is collected as garbage is given
// back.
var heldLock *checkpoint.Lock

// lockChild is the test binary as another process: it locks the folder and waits to be
// killed, or for the test's end.
func lockChild(dir string) {
	var err error
	if heldLock, err = checkpoint.LockDir(dir); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin) // to wait for nothing at all, the runtime takes for a deadlock
}

func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "a")
	lock, err := checkpoint.LockDir(dir)
	must(t, err)
	if _, err := checkpoint.LockDir(dir); !errors.Is(err, checkpoint.ErrLocked) {
		t.Errorf("a second lock: %v", err)
	}
	must(t, lock.Unlock())
	lock, err = checkpoint.LockDir(dir)
	must(t, err)
	must(t, lock.Unlock())
}

func TestLockOfAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	child := exec.Command(self)
	child.Env = append(os.Environ(), lockChildEnv+"="+dir)
	stdout, err := child.StdoutPipe()
	must(t, err)
	_, err = child.StdinPipe()
	must(t, err)
	must(t, child.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "locked\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}

	_, err = checkpoint.LockDir(dir)
	if !errors.Is(err, checkpoint.ErrLocked) {
		t.Fatalf("the child has the lock: %v", err)
	}
	for _, want := range []string{fmt.Sprintf("process %d since ", child.Process.Pid), dir} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %q is not in it", err, want)
		}
	}

	must(t, child.Process.Kill())
	if err := child.Wait(); err == nil {
		t.Error("the child ended by itself")
	}
	lock, err := checkpoint.LockDir(dir)
	if err != nil {
		t.Fatalf("after the child's death: %v", err)
	}
	must(t, lock.Unlock())
}
