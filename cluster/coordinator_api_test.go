package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/cluster/internal/journal"
	"github.com/troupe-ml/troupe/cluster/internal/logring"
	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// workerEnv is the environment variable that makes the test binary a worker; it has the coordinator's address.
const workerEnv = "TROUPE_API_TEST_JOIN"

// TestAPIWorker is not a test but the worker that other tests start, in a separate process, because two transports in one
// process are a data race in protoactor.
func TestAPIWorker(t *testing.T) {
	address := os.Getenv(workerEnv)
	if address == "" {
		t.Skip("it is a process of other tests")
	}
	ctx, token := fromStdin(t)
	if err := Work(ctx, WorkerConfig{Join: address, Token: token, Name: os.Getenv(workerEnv + "_NAME"), Threads: 1}); err != nil {
		t.Fatal(err)
	}
}

// fromStdin reads a token from standard input; ctx ends when that input does.
func fromStdin(t *testing.T) (ctx context.Context, token Token) {
	t.Helper()
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if token, err = ParseToken(line); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the standard input
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx, token
}

// startCoordinator starts a coordinator, with workers in separate processes.
func startCoordinator(t *testing.T, cfg Config, workers int) *Coordinator {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	cfg.Listen = "127.0.0.1:0"
	cfg.Silence = 20 * time.Second // a busy machine's workers are no lost ones
	c, err := NewCoordinator(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		goleak.VerifyNone(t, leaks)
	})
	for i := range workers {
		token, err := c.NewToken(RoleWorker, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestAPIWorker$")
		cmd.Env = append(os.Environ(), workerEnv+"="+c.Address(), fmt.Sprintf("%s_NAME=w%d", workerEnv, i), "GORACE=atexit_sleep_ms=0")
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			_, err = io.WriteString(in, token.String()+"\n")
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := c.Wait(ctx, workers); err != nil {
		t.Fatal(err)
	}
	return c
}

func newTestClient(t *testing.T, c *Coordinator, role Role) *Client {
	t.Helper()
	token, err := c.NewToken(role, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	client, err := NewClient(t.Context(), ClientConfig{Address: c.Address(), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestRuns: clients can submit a run, follow it, pause, stop and list it. A stopped run resumes, and Shutdown keeps it for
// the next coordinator.
func TestRuns(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("a few words of a text ", 60)), 0o600); err != nil {
		t.Fatal(err)
	}
	submission := Submission{File: "c.toml",
		Config: fmt.Appendf(nil,
			"[run]\nname = \"r\"\nout = %q\nsteps = 1000000\neval_every = 0\ncheckpoint_every = 0\n[model]\nlayers = 2\nhidden = 8\nheads = 2\ncontext = 8\n[data]\ntrain = [%q]\n[batch]\nsequences = 4\nmicrobatch = 2\n[optimizer]\nwarmup_steps = 2\ndecay = \"constant\"\n[pipeline]\nstages = 2\n", filepath.Join(dir, "out"), text)}
	state := filepath.Join(dir, "state")
	c := startCoordinator(t, Config{Dir: state, RemoteTokens: true}, 2)
	o := newTestClient(t, c, RoleOperator)
	ctx := t.Context()
	id, err := o.Submit(ctx, submission)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Submit(ctx, submission); !errors.Is(err, troupe.ErrNoWorkers) {
		t.Errorf("a second run, without workers for it: %v", err)
	}
	watcher, err := newTestClient(t, c, RoleViewer).Follow(ctx, "r", FollowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := o.Follow(ctx, id[:4], FollowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if f.ID != id || f.Name != "r" || f.LogEvery != 10 || f.Info().Stages != 2 {
		t.Errorf("followed is %+v", f.Info())
	}
	for e := range f.Events() {
		if s, ok := e.(troupe.StepEvent); ok && s.Step >= 3 {
			break
		}
	}
	for e := range watcher.Events() {
		if _, ok := e.(troupe.StepEvent); ok {
			break
		}
	}
	watcher.Detach()
	for range watcher.Events() { // to the end
	}
	if _, err := watcher.Wait(); !errors.Is(err, ErrDetached) {
		t.Errorf("detached: %v", err)
	}
	if _, status, err := o.Status(ctx, id); err != nil || len(status.Actors) < 6 || len(status.Chain()) == 0 {
		t.Errorf("status %v, %v", status, err)
	}
	if _, err := o.Control(ctx, id, Pause); err != nil {
		t.Fatal(err)
	}
	for e := range f.Events() {
		if p, ok := e.(troupe.PauseEvent); ok && p.Paused {
			break
		}
	}
	members, _, err := o.Members(ctx)
	if err != nil || len(members) != 2 || members[0].RunID != id || len(members[0].Ranks) != 1 {
		t.Errorf("members %+v, %v", members, err)
	}
	all, err := o.Runs(ctx)
	if err != nil || len(all) != 1 || all[0].State != "paused" || len(all[0].Workers) != 2 {
		t.Errorf("runs %+v, %v", all, err)
	}
	token, err := o.NewToken(ctx, RoleViewer, time.Minute)
	if err == nil {
		err = o.Revoke(ctx, token.ID)
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := NewClient(ctx, ClientConfig{Address: c.Address(), Token: token}); !errors.Is(err, ErrRefused) {
		t.Errorf("a revoked token: %v", err)
	}
	kept := func() []journal.Entry {
		c.runs.mu.Lock()
		defer c.runs.mu.Unlock()
		return c.runs.journal.Entries()
	}()
	if len(kept) != 1 || !slices.Equal(kept[0].Requests, []troupe.Change{{Kind: event.ChangePause}}) || kept[0].Workers != 2 ||
		kept[0].ID != id {
		t.Errorf("noted %+v", kept)
	}
	if _, err := o.Control(ctx, id, Resume); err != nil {
		t.Fatal(err)
	}
	c.Shutdown(ctx)
	f.Detach()
	for range f.Events() { // to the end
	}
	_, _ = f.Wait()
	j, err := journal.Open(state)
	if err != nil || len(j.Entries()) != 1 || len(j.Entries()[0].Requests) > 0 {
		t.Fatalf("behind the shutdown %+v, %v", j, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "out", "checkpoints", "last")); err != nil {
		t.Errorf("no checkpoint was written: %v", err)
	}
}

// deaf is a coordinator without a network, because a second transport in this process would be a data race in protoactor.
func deaf(t testing.TB) *Coordinator {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	c := &Coordinator{cfg: Config{Logger: log}, log: log, heard: make(map[uuid.UUID]heard), asked: make(map[uint64]question),
		workers: make(map[uuid.UUID]*workerState), changed: make(chan struct{}), logs: logring.New(), serving: make(chan struct{}, limitRequests),
		following: make(chan struct{}, limitFollowers), up: make(chan struct{})}
	c.runs, c.beats = &runs{c: c}, beat.NewServer(beat.ServerConfig{Logger: log})
	close(c.up)
	t.Cleanup(c.beats.Close)
	return c
}

// request sends bytes as a request, and returns what comes back within a limited time.
func request(c *Coordinator, role pki.Role, text []byte, within time.Duration) []byte {
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.serveAPI(ours, transport.Peer{Name: "x", Role: string(role), Address: "there"})
	}()
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = theirs.Write(text)
		if len(text) < 4 || int64(len(text))-4 < int64(binary.LittleEndian.Uint32(text)) {
			_ = theirs.Close() // the rest never comes
		}
	}()
	_ = theirs.SetReadDeadline(time.Now().Add(within))
	answer, _ := io.ReadAll(theirs)
	_ = theirs.Close()
	<-wrote
	<-done
	return answer
}

// TestRoles: a viewer may only watch, an operator may do everything, and a worker nothing.
func TestRoles(t *testing.T) {
	c := deaf(t)
	for _, r := range []struct {
		kind  *wire.ApiRequest
		watch bool
	}{
		{&wire.ApiRequest{Kind: &wire.ApiRequest_Submit{Submit: &wire.SubmitRequest{}}}, false},
		{&wire.ApiRequest{Kind: &wire.ApiRequest_Control{Control: &wire.ControlRequest{}}}, false},
		{&wire.ApiRequest{Kind: &wire.ApiRequest_Tokens{Tokens: &wire.TokensRequest{}}}, false},
		{&wire.ApiRequest{}, false},
		{&wire.ApiRequest{Kind: &wire.ApiRequest_Follow{Follow: &wire.FollowRequest{}}}, true},
		{&wire.ApiRequest{Kind: &wire.ApiRequest_List{List: &wire.ListRequest{}}}, true},
		{&wire.ApiRequest{Kind: &wire.ApiRequest_Status{Status: &wire.RunStatusRequest{}}}, true},
		{&wire.ApiRequest{Kind: &wire.ApiRequest_Logs{Logs: &wire.LogsRequest{}}}, true},
		{&wire.ApiRequest{Kind: &wire.ApiRequest_Members{Members: &wire.MembersRequest{}}}, true},
	} {
		r.kind.Version = apiVersion
		var frame bytes.Buffer
		if err := wire.WriteFrame(&frame, r.kind, limitRequestBytes); err != nil {
			t.Fatal(err)
		}
		for _, role := range []pki.Role{pki.Viewer, pki.Operator} {
			var m wire.ApiReply
			if err := wire.ReadFrame(bytes.NewReader(request(c, role, frame.Bytes(), time.Minute)), &m, limitReplyBytes); err != nil {
				t.Fatalf("%T by a %s: %v", r.kind.Kind, role, err)
			}
			forbidden := m.GetError().GetKind() == wire.ApiError_FORBIDDEN && strings.Contains(m.GetError().GetTexts()[0], "has the role")
			if forbidden != (role == pki.Viewer && !r.watch) {
				t.Errorf("%T by a %s: %v", r.kind.Kind, role, m.GetError())
			}
		}
	}
	for _, p := range []string{apiProtocol, logProtocol, beatProtocol, mesh.LaneProtocol, transport.ProtocolControl} {
		for role, may := range map[pki.Role]bool{pki.Operator: p == apiProtocol, pki.Viewer: p == apiProtocol, pki.Worker: p != apiProtocol} {
			if allow(transport.Peer{Role: string(role)}, p) != may {
				t.Errorf("%s may speak %s: %v", role, p, !may)
			}
		}
	}
}

// TestNonsense: invalid requests are dropped or answered by an error.
func TestNonsense(t *testing.T) {
	c := deaf(t)
	for name, text := range map[string]string{"nothing": "", "HTTP": "GET / HTTP/1.1\r\n\r\n", "too long": "\xff\xff\xff\x7f",
		"no message": "\x02\x00\x00\x00\xff\xff"} {
		if got := request(c, pki.Operator, []byte(text), time.Minute); len(got) > 0 {
			t.Errorf("%s is answered by %q", name, got)
		}
	}
	var m wire.ApiReply
	if err := wire.ReadFrame(bytes.NewReader(request(c, pki.Operator, []byte("\x00\x00\x00\x00"), time.Minute)), &m,
		limitReplyBytes); err != nil || !strings.Contains(m.GetError().GetTexts()[0], "version 0") {
		t.Errorf("another version: %v, %v", &m, err)
	}
}

// TestBusy: the number of requests in progress is limited, and followers don't count.
func TestBusy(t *testing.T) {
	c := deaf(t)
	for range limitFollowers {
		c.following <- struct{}{}
	}
	list := &wire.ApiRequest{Version: apiVersion, Kind: &wire.ApiRequest_List{List: &wire.ListRequest{}}}
	follow := &wire.ApiRequest{Version: apiVersion, Kind: &wire.ApiRequest_Logs{Logs: &wire.LogsRequest{Follow: true}}}
	ask := func(r *wire.ApiRequest) error {
		var frame bytes.Buffer
		if err := wire.WriteFrame(&frame, r, limitRequestBytes); err != nil {
			t.Fatal(err)
		}
		var m wire.ApiReply
		if err := wire.ReadFrame(bytes.NewReader(request(c, pki.Viewer, frame.Bytes(), time.Minute)), &m, limitReplyBytes); err != nil {
			t.Fatal(err)
		}
		return apiwire.UnpackError(m.GetError())
	}
	if err := ask(list); err != nil {
		t.Errorf("beside followers: %v", err)
	}
	if err := ask(follow); !errors.Is(err, ErrTryAgain) {
		t.Errorf("one follower too many: %v", err)
	}
	for range limitRequests {
		c.serving <- struct{}{}
	}
	if err := ask(list); !errors.Is(err, ErrTryAgain) {
		t.Errorf("one request too many: %v", err)
	}
}

// FuzzServeAPI: no request of an operator makes the coordinator fail.
func FuzzServeAPI(f *testing.F) {
	for _, m := range []*wire.ApiRequest{
		{Version: apiVersion, Kind: &wire.ApiRequest_List{}},
		{Version: apiVersion, Kind: &wire.ApiRequest_Submit{Submit: &wire.SubmitRequest{Config: []byte("[run]\nsteps = 1\n"),
			Sets: []string{"run.name=x"}}}},
		{Version: apiVersion, Kind: &wire.ApiRequest_Control{Control: &wire.ControlRequest{Run: "x", Action: 3}}},
		{Version: apiVersion, Kind: &wire.ApiRequest_Record{Record: &wire.RecordRequest{Run: "x", Follower: 1, ForNs: 1e9}}},
		{Version: apiVersion, Kind: &wire.ApiRequest_Actions{Actions: &wire.ActionsRequest{Run: "x"}}},
	} {
		var b bytes.Buffer
		if err := wire.WriteFrame(&b, m, limitRequestBytes); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	c := deaf(f)
	f.Fuzz(func(_ *testing.T, text []byte) { request(c, pki.Operator, text, 20*time.Millisecond) })
}
