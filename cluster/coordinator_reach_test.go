package cluster_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster"
)

// relay forwards connections to another address while it is open.
type relay struct {
	address string

	mu     sync.Mutex
	listen net.Listener // nil: closed
	conns  []net.Conn
	going  sync.WaitGroup
}

// newRelay reserves an address but does not listen there yet.
func newRelay(t *testing.T) *relay {
	t.Helper()
	r := &relay{address: unusedAddress(t)}
	t.Cleanup(r.close)
	return r
}

// unusedAddress returns an address where no process listens.
func unusedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing was written
	return l.Addr().String()
}

// open forwards connections to an address from now on; with "" it closes them.
func (r *relay) open(t *testing.T, to string) {
	t.Helper()
	l, err := net.Listen("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	r.listen = l
	r.mu.Unlock()
	r.going.Go(func() { // ends with l
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			var far net.Conn
			if to != "" {
				far, err = net.Dial("tcp", to)
			}
			if far == nil || err != nil {
				_ = conn.Close()
				continue
			}
			r.mu.Lock()
			if r.listen == nil {
				_, _ = conn.Close(), far.Close()
			}
			r.conns = append(r.conns, conn, far)
			r.mu.Unlock()
			for _, way := range [][2]net.Conn{{conn, far}, {far, conn}} {
				r.going.Go(func() { // ends with the connections
					_, _ = io.Copy(way[0], way[1])
					_, _ = way[0].Close(), way[1].Close()
				})
			}
		}
	})
}

// close forwards nothing any more.
func (r *relay) close() {
	r.mu.Lock()
	if r.listen != nil {
		_ = r.listen.Close()
	}
	for _, conn := range r.conns {
		_ = conn.Close()
	}
	r.listen, r.conns = nil, nil
	r.mu.Unlock()
	r.going.Wait()
}

// loudCoordinator starts a coordinator with a log, and a silence that is long enough for a busy machine.
func loudCoordinator(t *testing.T, silence time.Duration) (*cluster.Coordinator, *lines) {
	t.Helper()
	if raceDetector {
		t.Skip("two of protoactor's remotes in a process are a race: gRPC's logger is global")
	}
	log := new(lines)
	c, err := cluster.NewCoordinator(cluster.Config{Listen: "127.0.0.1:0", Silence: silence, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, log
}

// operatorOf connects an operator to a coordinator for the rest of the test.
func operatorOf(t *testing.T, c *cluster.Coordinator) *cluster.Client {
	t.Helper()
	token, err := c.NewToken(cluster.RoleOperator, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	operator, err := cluster.NewClient(t.Context(), cluster.ClientConfig{Address: c.Address(), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(operator.Close)
	return operator
}

// TestWorkerOutOfReach: a worker that the coordinator can't reach at its advertised address is not a member. Its log says
// why, the coordinator's log says so once, and operators see it. It joins as soon as the coordinator reaches it.
func TestWorkerOutOfReach(t *testing.T) {
	c, boss := loudCoordinator(t, 20*time.Second)
	operator := operatorOf(t, c)
	good, stopGood := works(t, cluster.WorkerConfig{Join: c.Address(), Token: workerToken(t, c), Name: "good"})
	good.eventually(t, "msg=\"joined the cluster\"")
	for _, test := range []struct{ name, behind, says string }{
		{"nothing-there", "", "connection refused"},
		{"closes", "nobody", "dial "},
		{"another-worker", c.Members()[0].Address, "wrong name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRelay(t)
			switch test.behind {
			case "":
			case "nobody":
				r.open(t, "")
			default:
				r.open(t, test.behind)
			}
			own := unusedAddress(t)
			log, stop := works(t, cluster.WorkerConfig{Join: c.Address(), Token: workerToken(t, c), Name: test.name, Listen: own,
				Advertise: r.address})
			log.eventually(t, "the coordinator can't reach this worker, so it gets no ranks; it keeps trying")
			for _, log := range []*lines{log, boss} {
				contains(t, log.String(), "can't reach this worker at its address "+r.address, test.says, "--advertise")
			}
			refused, asked := 0, time.Time{}
			for begin := time.Now(); refused < 2 && time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) { // asks again
				all, _, err := operator.Unreachable(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if i := slices.IndexFunc(all, func(w cluster.UnreachableWorker) bool { return w.Name == test.name }); i >= 0 &&
					all[i].Asked.After(asked) {
					asked = all[i].Asked
					refused++
					contains(t, all[i].Error, test.says)
				}
			}
			if n := len(c.Members()); n != 1 {
				t.Errorf("there are %d members, want the other worker alone", n)
			}
			if n := strings.Count(boss.String(), "msg=\"refused an unreachable worker; it keeps trying\" worker="+test.name+" "); n != 1 {
				t.Errorf("the coordinator says it %d times, want once:\n%s", n, boss)
			}
			r.close()
			r.open(t, own)
			log.eventually(t, "msg=\"joined the cluster\"")
			if err := c.Wait(t.Context(), 2); err != nil {
				t.Error(err)
			}
			if all, _, err := operator.Unreachable(t.Context()); err != nil || len(all) > 0 {
				t.Errorf("still refused: %+v, %v", all, err)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
	if err := stopGood(); err != nil {
		t.Error(err)
	}
}

// TestCoordinatorOutOfReach: a worker that reaches the coordinator at one address, but not at the advertised one, says so and
// is not a member until it reaches that.
func TestCoordinatorOutOfReach(t *testing.T) {
	if raceDetector {
		t.Skip("two of protoactor's remotes in a process are a race: gRPC's logger is global")
	}
	r, own := newRelay(t), unusedAddress(t)
	c, err := cluster.NewCoordinator(cluster.Config{Listen: own, Advertise: r.address, Silence: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	log, stop := works(t, cluster.WorkerConfig{Join: own, Token: workerToken(t, c), Name: "w"})
	log.eventually(t, "this worker can't reach the coordinator at all its addresses, so it gets no ranks; it keeps trying")
	contains(t, log.String(), "can't reach the coordinator at "+r.address+", the address that it advertises: ",
		"connection refused", "--advertise")
	if n := len(c.Members()); n != 0 {
		t.Errorf("there are %d members, want none", n)
	}
	joins := strings.Count(log.String(), "msg=\"joined the cluster\"")
	r.open(t, own)
	for begin := time.Now(); strings.Count(log.String(), "msg=\"joined the cluster\"") == joins; time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("it does not join:\n%s", log)
		}
	}
	if err := c.Wait(t.Context(), 1); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	r.close()
}

// TestWorkerGetsOutOfReach: a worker that has become unreachable when a run begins is lost, and the run begins without it.
// Meanwhile clients are told what the run waits for.
func TestWorkerGetsOutOfReach(t *testing.T) {
	c, _ := loudCoordinator(t, 2*time.Second)
	operator := operatorOf(t, c)
	r, own := newRelay(t), unusedAddress(t)
	r.open(t, own)
	far, stopFar := works(t, cluster.WorkerConfig{Join: c.Address(), Token: workerToken(t, c), Name: "a", Listen: own, Advertise: r.address})
	far.eventually(t, "msg=\"joined the cluster\"")
	_, stopNear := works(t, cluster.WorkerConfig{Join: c.Address(), Token: workerToken(t, c), Name: "b"})
	if err := c.Wait(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	r.close()
	var told, seen []string
	id, err := operator.Submit(t.Context(), cluster.Submission{Config: []byte(smallRun),
		Sets: keys(t, filepath.Join(t.TempDir(), "out"), []string{"pipeline.stages=1"}),
		Notice: func(text string) {
			told = append(told, text)
			if runs, err := operator.Runs(t.Context()); err == nil && len(runs) == 1 {
				seen = append(seen, runs[0].Waiting)
			}
		}})
	if err != nil {
		t.Fatalf("%v, told %q", err, told)
	}
	const answers = "a answers, but it has not acknowledged messages for "
	failed := "worker a at " + r.address + " with rank 0 failed: it has not acknowledged messages for "
	contains(t, strings.Join(told, "\n"), answers, failed)
	contains(t, strings.Join(seen, "\n"), answers)
	// After the failure the run starts at once on b, so the list of runs may no longer say what it waited for.
	if seen[len(seen)-1] != "" {
		contains(t, strings.Join(seen, "\n"), failed)
	}
	f, err := operator.Follow(t.Context(), id, cluster.FollowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range f.Events() { // to the end
	}
	if _, err := f.Wait(); err != nil {
		t.Error(err)
	}
	runs, err := operator.Runs(t.Context())
	if err != nil || len(runs) != 1 || !slices.Equal(runs[0].Workers, []string{"b"}) || runs[0].State != "done" || runs[0].Waiting != "" {
		t.Errorf("%+v, %v: want a run that b has done", runs, err)
	}
	far.eventually(t, "the coordinator can't reach this worker")
	for _, stop := range []func() error{stopFar, stopNear} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestWrongRole: a token or certificate file of another role is refused before the coordinator is asked.
func TestWrongRole(t *testing.T) {
	c := coordinator(t, "127.0.0.1:0", "")
	dir := t.TempDir()
	tokens, files := make(map[cluster.Role]cluster.Token), make(map[cluster.Role]string)
	for _, role := range []cluster.Role{cluster.RoleWorker, cluster.RoleOperator, cluster.RoleViewer} {
		token, err := c.NewToken(role, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		tokens[role], files[role] = token, filepath.Join(dir, string(role)+".pem")
	}
	log, stop := works(t, cluster.WorkerConfig{Join: c.Address(), Token: tokens[cluster.RoleWorker], Name: "w",
		CertFile: files[cluster.RoleWorker]})
	log.eventually(t, "msg=\"joined the cluster\"")
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, role := range []cluster.Role{cluster.RoleOperator, cluster.RoleViewer} {
		client, err := cluster.NewClient(t.Context(), cluster.ClientConfig{Address: c.Address(), Token: tokens[role], CertFile: files[role]})
		if err != nil {
			t.Fatal(err)
		}
		client.Close()
	}
	work := func(token cluster.Token, file string) error {
		return cluster.Work(t.Context(), cluster.WorkerConfig{Join: c.Address(), Name: "w", Token: token, CertFile: file, Threads: 1})
	}
	ask := func(token cluster.Token, file string) error {
		client, err := cluster.NewClient(t.Context(), cluster.ClientConfig{Address: c.Address(), Token: token, CertFile: file})
		if err == nil {
			client.Close()
		}
		return err
	}
	for _, test := range []struct {
		name string
		do   func(cluster.Token, string) error
		role cluster.Role
		says string
	}{
		{"worker", work, cluster.RoleOperator, "is for an operator, but a worker needs worker.token"},
		{"worker", work, cluster.RoleViewer, "is for a viewer, but a worker needs worker.token"},
		{"client", ask, cluster.RoleWorker, "is for a worker; use that of an operator or a viewer"},
	} {
		for what, err := range map[string]error{
			"the token ": test.do(tokens[test.role], ""),
			"the certificate in " + files[test.role] + " ": test.do(cluster.Token{}, files[test.role]),
		} {
			if !errors.Is(err, cluster.ErrForbidden) || !strings.Contains(err.Error(), what+test.says) {
				t.Errorf("%s with %s of role %s: %v", test.name, what, test.role, err)
			}
		}
	}
}

// TestWorkerSaysWhy: the worker's log says why it can't reach its coordinator yet.
func TestWorkerSaysWhy(t *testing.T) {
	const another = "is from another authority"
	certs := filepath.Join(t.TempDir(), "w.pem")
	first := coordinator(t, "127.0.0.1:0", "")
	address := first.Address()
	log, stop := works(t, cluster.WorkerConfig{Join: address, Token: workerToken(t, first), Name: "w", CertFile: certs})
	log.eventually(t, "msg=\"joined the cluster\"")
	time.Sleep(300 * time.Millisecond) // so that it has dialed back: otherwise it waits 30 s for the coordinator's addresses
	first.Close()
	log.eventually(t, "can't reach the coordinator; the worker keeps trying")
	next := coordinator(t, address, "") // of another folder
	log.eventually(t, another)
	contains(t, log.String(), "this worker can't join the cluster yet; it keeps trying", "--token-file")
	if err := stop(); err != nil {
		t.Error(err)
	}
	log, stop = works(t, cluster.WorkerConfig{Join: address, Name: "w", CertFile: certs}) // with what it has from the first
	log.eventually(t, another)
	time.Sleep(time.Second) // a few tries
	if n := strings.Count(log.String(), another); n != 1 {
		t.Errorf("said %d times, want once:\n%s", n, log)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	log, stop = works(t, cluster.WorkerConfig{Join: address, Name: "w", CertFile: certs, Token: workerToken(t, next)})
	log.eventually(t, "msg=\"joined the cluster\"")
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := cluster.Work(t.Context(), cluster.WorkerConfig{Join: address, Name: "w",
		CertFile: filepath.Join(t.TempDir(), "no.pem")}); err == nil || !strings.Contains(err.Error(),
		"joining needs a join token (--token-file)") {
		t.Errorf("with neither a certificate nor a token: %v", err)
	}
}

// TestClientJoinsAnew: an operator with a certificate from a cluster that is gone joins the new one with its token.
func TestClientJoinsAnew(t *testing.T) {
	certs := filepath.Join(t.TempDir(), "operator.pem")
	for range 2 {
		c := coordinator(t, "127.0.0.1:0", "")
		token, err := c.NewToken(cluster.RoleOperator, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		client, err := cluster.NewClient(t.Context(), cluster.ClientConfig{Address: c.Address(), Token: token, CertFile: certs})
		if err == nil {
			_, err = client.Runs(t.Context())
			client.Close()
		}
		if err != nil {
			t.Error(err)
		}
		c.Close()
	}
}
