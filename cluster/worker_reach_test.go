package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster"
)

// lines is a log that a test may read during writes.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// eventually waits until the log has a text.
func (l *lines) eventually(t *testing.T, text string) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !strings.Contains(l.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the log does not say %q:\n%s", text, l.String())
		}
	}
}

// works starts a worker, and returns its log and a function that stops it.
func works(t *testing.T, cfg cluster.WorkerConfig) (log *lines, stop func() error) {
	log = new(lines)
	cfg.Logger, cfg.Threads = slog.New(slog.NewTextHandler(log, nil)), 1
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cluster.Work(ctx, cfg) }() // ends with ctx
	t.Cleanup(cancel)
	return log, func() error {
		cancel()
		return <-ended
	}
}

func coordinator(t *testing.T, listen, dir string) *cluster.Coordinator {
	t.Helper()
	if raceDetector {
		t.Skip("two of protoactor's remotes in a process are a race: gRPC's logger is global")
	}
	c, err := cluster.NewCoordinator(cluster.Config{Listen: listen, Dir: dir, Silence: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func workerToken(t *testing.T, c *cluster.Coordinator) cluster.Token {
	t.Helper()
	token, err := c.NewToken(cluster.RoleWorker, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestWorkerComesFirst: a worker that starts before its coordinator waits for it.
func TestWorkerComesFirst(t *testing.T) {
	dir := t.TempDir()
	before := coordinator(t, "127.0.0.1:0", dir)
	token, address := workerToken(t, before), before.Address()
	before.Close()
	log, stop := works(t, cluster.WorkerConfig{Join: address, Token: token, Name: "early"})
	log.eventually(t, "can't reach the coordinator; the worker")
	c := coordinator(t, address, dir)
	log.eventually(t, `msg="joined the cluster"`)
	if err := c.Wait(t.Context(), 1); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "can't reach the coordinator; the worker"); n != 1 {
		t.Errorf("the log says %d times that it can't reach the coordinator; want 1:\n%s", n, log)
	}
}

// TestWorkerWaitsForAName: a worker keeps trying if a host name does not exist. A signal stops it without an error.
func TestWorkerWaitsForAName(t *testing.T) {
	token := workerToken(t, coordinator(t, "127.0.0.1:0", ""))
	certs := filepath.Join(t.TempDir(), "no.pem")
	log, stop := works(t, cluster.WorkerConfig{Join: "coordinator.invalid:7443", Token: token, Name: "early", CertFile: certs})
	log.eventually(t, "coordinator.invalid")
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestWorkerTakesNo: an error that retries can't fix stops a worker at once.
func TestWorkerTakesNo(t *testing.T) {
	c, other := coordinator(t, "127.0.0.1:0", ""), coordinator(t, "127.0.0.1:0", "")
	wrong := workerToken(t, c)
	wrong.Secret[0]++
	for _, test := range []struct {
		name, join string
		token      cluster.Token
		want       string
	}{
		{"wrong secret", c.Address(), wrong, "the token was refused"},
		{"another cluster's token", c.Address(), workerToken(t, other), "not the coordinator that the token is for"},
		{"no port", "coordinator.invalid", workerToken(t, c), "missing port"},
		{"nonsense for a port", "127.0.0.1:x", workerToken(t, c), "want host:port"},
	} {
		t.Run(test.name, func(t *testing.T) {
			log := new(lines)
			err := cluster.Work(t.Context(), cluster.WorkerConfig{Join: test.join, Token: test.token, Name: "w", Threads: 1,
				Logger: slog.New(slog.NewTextHandler(log, nil))})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("it ends with %v; want %q", err, test.want)
			}
			if strings.Contains(log.String(), "keeps trying") {
				t.Error("it tried again:", log)
			}
		})
	}
}

// TestWorkerJoinsAnew: a worker with a certificate from a cluster that is gone joins another one with its token.
func TestWorkerJoinsAnew(t *testing.T) {
	certs := filepath.Join(t.TempDir(), "worker.pem")
	for range 2 {
		c := coordinator(t, "127.0.0.1:0", "")
		log, stop := works(t, cluster.WorkerConfig{Join: c.Address(), Token: workerToken(t, c), Name: "w", CertFile: certs})
		log.eventually(t, `msg="joined the cluster"`)
		if err := stop(); err != nil {
			t.Error(err)
		}
		c.Close()
	}
	if _, err := os.Stat(certs); err != nil {
		t.Error(err)
	}
}

// TestWorkerOutlastsAProxy: a proxy accepts connections for an absent coordinator and closes them; the worker keeps trying.
func TestWorkerOutlastsAProxy(t *testing.T) {
	c := coordinator(t, "127.0.0.1:0", "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepting := make(chan struct{})
	go func() { // ends with l
		defer close(accepting)
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_ = conn.Close()
			}
		}
	}()
	log, stop := works(t, cluster.WorkerConfig{Join: l.Addr().String(), Token: workerToken(t, c), Name: "w"})
	log.eventually(t, "keeps trying")
	if err := stop(); err != nil {
		t.Error(err)
	}
	_ = l.Close()
	<-accepting
}
