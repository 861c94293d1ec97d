package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// workerOutput collects the output of a worker.
type workerOutput struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (o *workerOutput) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(b)
}

func (o *workerOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// testWorker is a worker in a separate process.
type testWorker struct {
	cmd   *exec.Cmd
	out   workerOutput
	ended chan struct{}
}

// startWorker starts a worker; with name "" it gets the host's name.
func startWorker(t *testing.T, c *Coordinator, token Token, name string) *testWorker {
	t.Helper()
	w := &testWorker{cmd: exec.Command(os.Args[0], "-test.run=^TestAPIWorker$"), ended: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), workerEnv+"="+c.Address(), fmt.Sprintf("%s_NAME=%s", workerEnv, name), "GORACE=atexit_sleep_ms=0")
	w.cmd.Stdout, w.cmd.Stderr = &w.out, &w.out
	in, err := w.cmd.StdinPipe()
	if err == nil {
		err = w.cmd.Start()
	}
	if err == nil {
		_, err = io.WriteString(in, token.String()+"\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		defer close(w.ended)
		_ = w.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = in.Close()
		<-w.ended
	})
	return w
}

// ends waits until the worker exits by itself, and returns its output.
func (w *testWorker) ends(t *testing.T) string {
	t.Helper()
	select {
	case <-w.ended:
	case <-time.After(time.Minute):
		t.Fatalf("the worker goes on:\n%s", &w.out)
	}
	return w.out.String()
}

// until waits until the list of members meets a condition.
func until(t *testing.T, c *Coordinator, what string, is func(names []string) bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var names []string
		for _, m := range c.Members() {
			names = append(names, m.Name)
		}
		if is(names) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not %s: the members are %q", what, names)
		}
	}
}

// TestOneName: a second worker with a name in use exits with the reason, and the first one stays. Without --name it takes
// another name. When the first is dead, another key can get its name.
func TestOneName(t *testing.T) {
	c, err := NewCoordinator(Config{Listen: "127.0.0.1:0", Silence: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	token, err := c.NewToken(RoleWorker, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	first := startWorker(t, c, token, "same")
	until(t, c, "joined", func(names []string) bool { return len(names) == 1 })
	joined := c.Members()[0].Joined
	if text := startWorker(t, c, token, "same").ends(t); !strings.Contains(text, `worker "same" at 127.0.0.1:`) {
		t.Errorf("the second one says:\n%s", text)
	}
	startWorker(t, c, token, "")
	startWorker(t, c, token, "")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	until(t, c, "two with the host's name", func(names []string) bool {
		all := " " + strings.Join(names, " ") + " "
		return len(names) == 3 && strings.Contains(all, " "+host+" ") && strings.Contains(all, " "+host+"-2 ")
	})
	if m := c.Members()[0]; m.Name != "same" || !m.Joined.Equal(joined) {
		t.Errorf("the first one has left: %+v", m)
	}
	_ = first.cmd.Process.Kill()
	<-first.ended
	other, err := c.NewToken(RoleWorker, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	startWorker(t, c, other, "same")
	until(t, c, "joined again", func(names []string) bool { return len(names) == 3 && names[2] == "same" })
}

// TestRevokedEnds: revoking a token removes those that joined with it, also if engine cluster revoke works on the folder. A
// worker leaves the cluster with the reason, an operator's certificate is refused and not renewed, and open streams end.
func TestRevokedEnds(t *testing.T) {
	dir := t.TempDir()
	c, err := NewCoordinator(Config{Listen: "127.0.0.1:0", Silence: 3 * time.Second, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	tokens, err := OpenTokens(dir)
	if err != nil {
		t.Fatal(err)
	}
	made := make(map[Role][2]Token)
	for _, role := range []Role{RoleWorker, RoleOperator} {
		var two [2]Token
		for i := range two {
			if two[i], err = tokens.NewToken(role, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		made[role] = two
	}
	ends := startWorker(t, c, made[RoleWorker][0], "ends")
	startWorker(t, c, made[RoleWorker][1], "stays")
	until(t, c, "both joined", func(names []string) bool { return len(names) == 2 })
	client := func(token Token, file string) (*Client, error) {
		return NewClient(t.Context(), ClientConfig{Address: c.Address(), Token: token, CertFile: filepath.Join(dir, file)})
	}
	revoked, err := client(made[RoleOperator][0], "ends.pem")
	if err != nil {
		t.Fatal(err)
	}
	other, err := client(made[RoleOperator][1], "stays.pem")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	logs := make(chan error, 1)
	began := make(chan struct{}, 100)
	go func() { // ends with the stream
		logs <- revoked.Logs(ctx, "", time.Time{}, true, func([]LogRecord, uint64) error {
			began <- struct{}{}
			return nil
		})
	}()
	<-began
	for _, role := range []Role{RoleWorker, RoleOperator} {
		if err := tokens.Revoke(made[role][0].ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-logs; err == nil || ctx.Err() != nil {
		t.Errorf("the stream of logs: %v", err)
	}
	if text := ends.ends(t); !strings.Contains(text, "was revoked") {
		t.Errorf("the worker says:\n%s", text)
	}
	until(t, c, "one left", func(names []string) bool { return len(names) == 1 && names[0] == "stays" })
	if _, err := revoked.Runs(ctx); !errors.Is(err, ErrRevoked) {
		t.Errorf("the operator asks again: %v", err)
	}
	again, err := client(Token{}, "ends.pem") // of which only the certificate is left
	if err == nil {
		_, err = again.Runs(ctx)
	}
	if !errors.Is(err, ErrRevoked) {
		t.Errorf("by the certificate in the file: %v", err)
	}
	if _, err := renew(ctx, revoked.at, revoked.root, revoked.keeper, nil); !errors.Is(err, ErrRevoked) {
		t.Errorf("renewing: %v", err)
	}
	if _, err := other.Runs(ctx); err != nil {
		t.Errorf("the other operator: %v", err)
	}
	// A name that is released ends its worker, too.
	if err := tokens.Release("stays"); err != nil {
		t.Fatal(err)
	}
	until(t, c, "none left", func(names []string) bool { return len(names) == 0 })
}
