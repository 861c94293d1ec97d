package cluster_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
)

// refused starts a worker, which must exit by itself, and returns its output.
func refused(t *testing.T, g *group, cmd *exec.Cmd, s settings, token string) string {
	t.Helper()
	p, err := g.startProgram(cmd, "worker", s, token)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("the worker has not ended after %v:\n%s\n%s", patience, &p.err, g.describe())
	}
	if p.cmd.ProcessState.Success() {
		t.Errorf("the worker ended well:\n%s", &p.err)
	}
	return p.err.String()
}

// contains checks that a text has all parts.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

// lacks checks that a text does not have a part, unless the part is "".
func lacks(t *testing.T, text, part string) {
	t.Helper()
	if part != "" && strings.Contains(text, part) {
		t.Errorf("%q is in:\n%s", part, text)
	}
}

// TestRefused: a refused worker gets the reason, and others are not disturbed.
func TestRefused(t *testing.T) {
	g := newGroup(t, new(group))
	g.join(t, "first")
	place := g.line.place()
	stranger := func(name string) settings {
		return settings{Name: name, Join: g.address, Threads: 1}
	}
	t.Run("another build", func(t *testing.T) {
		other := copyProgram(t)
		text := refused(t, g, exec.CommandContext(g.ctx, other), stranger("other"), g.token(t, 60))
		e := g.await(t, "the coordinator's word about the other build", place, patience,
			func(e event) bool { return e.Kind == "log" && e.Text == "refused a worker" })
		for _, text := range []string{text, e.Attrs["err"]} {
			contains(t, text, "build mismatch: the worker runs", "the coordinator", "use the same executable everywhere")
			if builds := strings.Count(text, "linux/") + strings.Count(text, "darwin/") + strings.Count(text, "windows/"); builds < 2 {
				t.Errorf("%d builds are named, want both:\n%s", builds, text)
			}
		}
	})
	t.Run("a name that another has", func(t *testing.T) {
		contains(t, refused(t, g, g.program(g.ctx, ""), stranger("first"), g.token(t, 60)), `worker "first" at 127.0.0.1:`,
			"choose another name (--name)")
	})
	t.Run("the coordinator's name", func(t *testing.T) {
		contains(t, refused(t, g, g.program(g.ctx, ""), stranger("coordinator"), g.token(t, 60)),
			`the name "coordinator" is reserved for the coordinator`,
			"choose another name (--name)")
	})
	t.Run("an expired token", func(t *testing.T) {
		text := g.token(t, 1)
		token, err := cluster.ParseToken(text)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(token.Expires) + time.Second) // the token's own time
		contains(t, refused(t, g, g.program(g.ctx, ""), stranger("late"), text), pki.ErrTokenRefused.Error())
		g.await(t, "the coordinator's word about the expired token", place, patience, func(e event) bool {
			return e.Kind == "log" && strings.Contains(e.Attrs["err"], pki.ErrTokenExpired.Error())
		})
	})
	t.Run("a revoked token", func(t *testing.T) {
		text := g.token(t, 3600)
		token, err := cluster.ParseToken(text)
		if err != nil {
			t.Fatal(err)
		}
		authority, err := pki.OpenAuthority(filepath.Join(g.boss.Dir, "authority"), time.Now())
		if err == nil {
			err = authority.Revoke(token.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		contains(t, refused(t, g, g.program(g.ctx, ""), stranger("banned"), text), pki.ErrTokenRefused.Error())
		g.await(t, "the coordinator's word about the revoked token", place, patience, func(e event) bool {
			return e.Kind == "log" && strings.Contains(e.Attrs["err"], pki.ErrTokenRevoked.Error())
		})
	})
	out := filepath.Join(t.TempDir(), "out")
	if busy := g.train(t, command{Config: smallRun, Sets: keys(t, out, []string{"pipeline.stages=2"}), Workers: 1}); busy != 1 {
		t.Errorf("%d workers had ranks, want 1", busy)
	}
	events, _ := g.line.from(place)
	for _, e := range events {
		if gone("first")(e) || e.Kind == "log" && e.Text == "worker joined" {
			t.Errorf("the cluster's workers changed: %s", e)
		}
	}
}

// copyProgram copies the test binary with one more byte, so that only its build differs.
func copyProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close() //nolint:errcheck // nothing was written
	path := filepath.Join(t.TempDir(), filepath.Base(self))
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err == nil {
		_, err = out.Write([]byte{0})
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOlderAttempt: a worker refuses an attempt that is older than one it has seen.
func TestOlderAttempt(t *testing.T) {
	g := newGroup(t, new(group))
	g.join(t, "only")
	run := command{Do: "run", Config: smallRun, Workers: 1, Seconds: patience.Seconds()}
	run.Sets = keys(t, filepath.Join(t.TempDir(), "first"), []string{"pipeline.stages=2"})
	g.train(t, run)
	g.ask(t, command{Do: "lower generation", Workers: 1000})
	run.Sets = keys(t, filepath.Join(t.TempDir(), "second"), []string{"pipeline.stages=2"})
	e, err := g.tell(run, patience)
	if err != nil {
		t.Fatalf("%v\n%s", err, g.describe())
	}
	contains(t, e.Error, "worker only", "is out of date: this worker has seen attempt")
}
