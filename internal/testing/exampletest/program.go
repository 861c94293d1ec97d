package exampletest

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// asProgram is the environment variable that makes the test binary the example's program, and that of its workers.
const asProgram = "TROUPE_EXAMPLE_PROGRAM"

// Main is for TestMain: it runs the program if asProgram is set, else the tests, in the repository's root and after
// the program's registrations.
func Main(m *testing.M, program, register func()) {
	if os.Getenv(asProgram) != "" {
		program() // does not return
	}
	register()
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// Program runs the example's program and returns its output and exit status.
func Program(t testing.TB, args ...string) (out, errs string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0", "NO_COLOR=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// Cluster trains with three worker processes and compares the result with an unpipelined run.
func Cluster(t *testing.T, file, want string, more ...string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"run", file, "--quiet", "--local-cluster", "3"}
	for _, key := range append(Keys(out, Steps), more...) {
		args = append(args, "--set", key)
	}
	if _, errs, status := Program(t, args...); status != 0 {
		t.Fatalf("%v ends with status %d:\n%s", args, status, errs)
	}
	Same(t, want, out)
}

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// Golden compares output with a file in a folder's testdata.
func Golden(t testing.TB, folder, name, got string) {
	t.Helper()
	file := filepath.Join(folder, "testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("it differs from %s (go test -update rewrites it); got\n%s\nwant\n%s", file, got, want)
	}
}
