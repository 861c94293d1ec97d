package cli

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/internal/safetensors"
)

var update = flag.Bool("update", false, "rewrite the texts that scripts compare with")

// In the tests `engine` is the real program in its own process, and `mine` is a custom program with a registered
// layer and data format (own_test.go).
func TestMain(m *testing.M) {
	testscript.Main(noLeaks{m}, map[string]func(){"engine": Main, "mine": mine})
}

// noLeaks fails tests that leave a goroutine behind.
type noLeaks struct{ *testing.M }

func (m noLeaks) Run() int {
	code := m.M.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestScripts(t *testing.T) {
	p := scripts("testdata/scripts")
	p.UpdateScripts = *update
	testscript.Run(t, p)
}

// scripts returns what the scripts of a folder need.
func scripts(dir string) testscript.Params {
	return testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=0") // under the race detector every process would end with a second's sleep
			return os.CopyFS(env.WorkDir, os.DirFS("testdata/common"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": cmdStatus,
			"adopt":  cmdAdopt, "near": cmdNear, "await": cmdAwait,
			"until":       cmdUntil,
			"coordinator": cmdCoordinator,
			"flip":        cmdFlip,
			"huge":        cmdHuge,
			"idx":         cmdIDX,
			"truncate":    cmdTruncate,
		},
		Condition: func(cond string) (bool, error) {
			if cond == "race" {
				return raceDetector, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		RequireExplicitExec: true,
	}
}

// cmdStatus runs a program and compares its exit status: status 78 engine …
func cmdStatus(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("the exit status is %d, not %d", got, want)
	}
}

// cmdAwait waits until a file matches a pattern: await FILE PATTERN
func cmdAwait(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(await(ts.MkAbs(args[0]), args[1]))
}

// patience is the longest time for a few steps on a busy machine.
const patience = 2 * time.Minute

// await waits until a file matches a pattern.
func await(path, pattern string) error {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < patience; time.Sleep(10 * time.Millisecond) {
		if text, err := os.ReadFile(path); err == nil && re.Match(text) {
			return nil
		}
	}
	return fmt.Errorf("%s does not come to match %s in %v", path, pattern, patience)
}

// cmdUntil runs a program until its output matches a pattern: until PATTERN engine …
func cmdUntil(ts *testscript.TestScript, _ bool, args []string) {
	re, err := regexp.Compile(args[0])
	ts.Check(err)
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		if err := ts.Exec(args[1], args[2:]...); err == nil && re.MatchString(ts.ReadFile("stdout")) {
			return
		}
	}
	ts.Fatalf("%v does not come to print %s", args[1:], args[0])
}

// cmdCoordinator waits until a coordinator listens, and sets a variable to its address:
// coordinator DIR [VARIABLE]
func cmdCoordinator(ts *testscript.TestScript, _ bool, args []string) {
	path := filepath.Join(ts.MkAbs(args[0]), "address")
	ts.Check(await(path, "."))
	ts.Check(await(filepath.Join(ts.MkAbs(args[0]), "operator.token"), ".")) // the last file that it writes
	address, err := os.ReadFile(path)
	ts.Check(err)
	name := "CLUSTER"
	if len(args) > 1 {
		name = args[1]
	}
	ts.Setenv(name, strings.TrimSpace(string(address)))
}

// cmdFlip inverts the last byte of a file: flip FILE
func cmdFlip(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	text, err := os.ReadFile(path)
	ts.Check(err)
	text[len(text)-1] ^= 0xff
	ts.Check(os.WriteFile(path, text, 0o666))
}

// cmdHuge makes all numbers of a tensor so large that results with them are not finite: huge FILE TENSOR
func cmdHuge(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	f, err := safetensors.Open(path)
	ts.Check(err)
	info, ok := f.Info(args[1])
	ts.Check(f.Close())
	if !ok {
		ts.Fatalf("%s has no tensor %s", path, args[1])
	}
	text, err := os.ReadFile(path)
	ts.Check(err)
	data := text[8+binary.LittleEndian.Uint64(text):] // after the header and its length
	for at := info.Offset; at < info.Offset+info.Size; at += 4 {
		binary.LittleEndian.PutUint32(data[at:], math.Float32bits(3e38))
	}
	ts.Check(os.WriteFile(path, text, 0o666))
}

// cmdIDX writes a file in MNIST's format with the bytes 0, 1, … below a bound, repeated: idx FILE BOUND DIMENSION…
func cmdIDX(ts *testscript.TestScript, _ bool, args []string) {
	bound, err := strconv.Atoi(args[1])
	ts.Check(err)
	file, n := []byte{0, 0, 8, byte(len(args) - 2)}, 1
	for _, arg := range args[2:] {
		dim, err := strconv.Atoi(arg)
		ts.Check(err)
		file = binary.BigEndian.AppendUint32(file, uint32(dim))
		n *= dim
	}
	for i := range n {
		file = append(file, byte(i%bound))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), file, 0o666))
}

// cmdTruncate cuts a file off: truncate FILE BYTES
func cmdTruncate(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), n))
}

// workdir returns a folder with the files that scripts use.
func workdir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "common"))); err != nil {
		t.Fatal(err)
	}
	return dir
}
