package transport_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

// Two of protoactor's remotes in one process are a data race, because gRPC's logger is global. So every transport in these
// tests has a separate process: the test binary with a node's configuration in the environment. It reads commands from
// standard input and answers on standard output, one line of JSON each.
const nodeEnv = "TROUPE_TRANSPORT_TEST_NODE"

type nodeConfig struct {
	Listen, Advertise, Data string
	Insecure                bool
	Root, Cert, Key         []byte // PEM; none: no TLS
	SlowEnvelopes           bool   // wait in the handler until told to go on
	Echo                    bool   // answer each envelope, to the address in its target
}

type command struct {
	Op       string // send, redial, left, report, dial, stats, resume, rounds, close
	To       string
	Protocol string
	Sender   string
	From, N  uint64
	Bytes    int
	Window   int // of rounds: how many may be without an answer
}

type answer struct {
	Address, Data string
	Error         string
	Refused       bool
	Insecure      bool
	Received      map[string]*received // by the sender's name
	Log           []string
	Heap          uint64
	Goroutines    int
	Took          time.Duration
	Echo          string
	Dialed        int
}

type received struct {
	Count, Last uint64
	Disorder    uint64 // messages that did not follow the last
	Peer        transport.Peer
	Bytes       uint64
}

func TestMain(m *testing.M) {
	if config := os.Getenv(nodeEnv); config != "" {
		if err := runNode([]byte(config)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Most tests wait for a limit's time; those that may run beside others do, however few processors there are.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// nodeState is a node in its process.
type nodeState struct {
	mu       sync.Mutex
	received map[string]*received
	log      []string
	resume   chan struct{}
	system   *actor.ActorSystem
	echo     func(m *wire.Envelope) // nil: none
	answers  chan uint64            // of rounds
}

func (n *nodeState) envelope(from transport.Peer, m *wire.Envelope) {
	<-n.resume
	if m.GetSender() == "panic" {
		panic("as told")
	}
	if n.echo != nil {
		n.echo(m)
		return
	}
	if m.GetSender() == "echo" {
		n.answers <- m.GetSeq()
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.received[m.GetSender()]
	if r == nil {
		r = &received{}
		n.received[m.GetSender()] = r
	}
	if m.GetSeq() != r.Last+1 {
		r.Disorder++
	}
	r.Count++
	r.Last = m.GetSeq()
	r.Peer = from
	r.Bytes += uint64(len(m.GetTarget()))
}

// Write is the log's.
func (n *nodeState) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log = append(n.log, strings.TrimSpace(string(p)))
	return len(p), nil
}

func runNode(config []byte) error {
	var cfg nodeConfig
	err := json.Unmarshal(config, &cfg)
	if err != nil {
		return err
	}
	n := &nodeState{received: make(map[string]*received), resume: make(chan struct{}), answers: make(chan uint64, 1<<16)}
	if !cfg.SlowEnvelopes {
		close(n.resume)
	}
	logger := slog.New(slog.NewTextHandler(n, nil))
	tc := transport.Config{
		System: actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
			return transport.SystemLogger(logger)
		})),
		Listen: cfg.Listen, Advertise: cfg.Advertise, DataListen: cfg.Data, Insecure: cfg.Insecure, Logger: logger,
		Handlers: transport.Handlers{
			Envelope: n.envelope,
			Streams: map[string]func(net.Conn, transport.Peer){
				"echo": func(c net.Conn, _ transport.Peer) {
					defer func() { _ = c.Close() }()
					_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
				},
				"who": func(c net.Conn, p transport.Peer) {
					defer func() { _ = c.Close() }()
					fmt.Fprintf(c, "%s %s %t", p.Name, p.Role, p.Address != "")
				},
				"impatient": func(c net.Conn, _ transport.Peer) {
					defer func() { _ = c.Close() }()
					_ = c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
					_, err := c.Read(make([]byte, 1))
					fmt.Fprint(c, errors.Is(err, os.ErrDeadlineExceeded))
				},
				"buffers": func(c net.Conn, _ transport.Peer) {
					defer func() { _ = c.Close() }()
					b := net.Buffers{[]byte("a"), []byte("b"), []byte("c")}
					_, _ = b.WriteTo(c)
				},
				"operate": func(c net.Conn, _ transport.Peer) { _ = c.Close() },
				"join": func(c net.Conn, p transport.Peer) {
					defer func() { _ = c.Close() }()
					fmt.Fprintf(c, "joining %q", p.Name)
				},
			},
		},
	}
	if cfg.Cert != nil {
		cert, err := tls.X509KeyPair(cfg.Cert, cfg.Key)
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(cfg.Root)
		tc.Server = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: roots, ClientAuth: tls.VerifyClientCertIfGiven}
		tc.Client = func(string) *tls.Config {
			return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: "troupe"}
		}
		tc.Identify = func(s tls.ConnectionState) (string, string, error) {
			subject := s.VerifiedChains[0][0].Subject
			if len(subject.OrganizationalUnit) != 1 {
				return "", "", errors.New("it has no role")
			}
			return subject.CommonName, subject.OrganizationalUnit[0], nil
		}
		tc.Allow = func(p transport.Peer, protocol string) bool {
			return protocol != "operate" || p.Role == "operator"
		}
	}
	n.system = tc.System
	out := json.NewEncoder(os.Stdout)
	ready := make(chan struct{})
	var t *transport.TCP
	if cfg.Echo {
		n.echo = func(m *wire.Envelope) {
			<-ready
			m.Sender = "echo"
			t.Send(m.GetTarget(), m)
		}
	}
	t, err = transport.Listen(tc)
	if err != nil {
		return out.Encode(answer{Error: err.Error(), Insecure: errors.Is(err, transport.ErrInsecure), Log: n.log})
	}
	if cfg.Echo {
		close(ready)
	}
	if err := out.Encode(answer{Address: t.Address(), Data: t.DataAddress()}); err != nil {
		return err
	}
	in := json.NewDecoder(os.Stdin)
	for {
		var c command
		if err := in.Decode(&c); err != nil {
			return nil // the test has ended
		}
		if err := out.Encode(n.do(t, c)); err != nil {
			return err
		}
	}
}

func (n *nodeState) do(t *transport.TCP, c command) (a answer) {
	start := time.Now()
	defer func() { a.Took = time.Since(start) }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch c.Op {
	case "send":
		padding := strings.Repeat("x", c.Bytes)
		for i := range c.N {
			t.Send(c.To, &wire.Envelope{Sender: c.Sender, Seq: c.From + i, Target: padding})
		}
	case "panic":
		t.Send(c.To, &wire.Envelope{Sender: "panic"})
	case "pid": // what no program should do: nothing of it may reach the other side
		pid := actor.NewPID(c.To, transport.LinkActor)
		root := n.system.Root
		root.Send(pid, &wire.Envelope{Sender: "pid"})
		root.Stop(pid)
		root.Poison(pid)
		root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			if _, started := ctx.Message().(*actor.Started); started {
				ctx.Watch(pid)
				ctx.Unwatch(pid)
			}
		}))
	case "redial":
		t.Redial(c.To)
	case "left": // as protoactor's list of members says that the process at an address has left
		n.system.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: c.To})
	case "resume":
		close(n.resume)
	case "rounds":
		body := &wire.Envelope_Control{Control: &wire.Control{Kind: &wire.Control_Assign{Assign: &wire.Assign{Config: make([]byte, c.Bytes)}}}}
		for sent, got := uint64(0), uint64(0); got < c.N; got++ {
			for ; sent < c.N && sent < got+uint64(c.Window); sent++ {
				t.Send(c.To, &wire.Envelope{Sender: c.Sender, Seq: sent + 1, Target: t.Address(), Body: body})
			}
			select {
			case <-n.answers:
			case <-ctx.Done():
				a.Error = fmt.Sprintf("%d of %d answers", got, c.N)
				return a
			}
		}
	case "dial":
		conn, err := t.Dial(ctx, c.To, c.Protocol)
		if err != nil {
			a.Error, a.Refused = err.Error(), errors.Is(err, transport.ErrRefused)
			return a
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if c.Protocol == "echo" {
			want := make([]byte, c.Bytes)
			for i := range want {
				want[i] = byte(i * 7)
			}
			go func() { _, _ = conn.Write(want) }()
			got := make([]byte, c.Bytes)
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != string(want) {
				a.Error = fmt.Sprintf("echo of %d bytes: %v", c.Bytes, err)
			}
			return a
		}
		got, err := io.ReadAll(conn)
		if err != nil {
			a.Error = err.Error()
		}
		a.Echo = string(got)
	case "stats":
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		a.Heap, a.Goroutines = m.HeapAlloc, runtime.NumGoroutine()
	case "close":
		t.Close()
		a.Took = time.Since(start)
		if err := goleak.Find(); err != nil {
			a.Error = err.Error()
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	a.Log, a.Dialed = append([]string(nil), n.log...), t.Dialed()
	a.Received = make(map[string]*received)
	for name, r := range n.received {
		c := *r
		a.Received[name] = &c
	}
	return a
}

// node is a node seen from the test.
type node struct {
	tb      testing.TB
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	Address string
	Data    string
}

// tryNode starts a node; the answer says whether it listens.
func tryNode(tb testing.TB, cfg nodeConfig) (*node, answer) {
	tb.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	encoded, err := json.Marshal(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	n := &node{tb: tb, cmd: exec.Command(os.Args[0])}
	n.cmd.Env = append(os.Environ(), nodeEnv+"="+string(encoded))
	n.cmd.Stderr = os.Stderr
	in, err := n.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	n.in, n.out = in, bufio.NewReader(out)
	if err := n.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(n.kill)
	a := n.read()
	n.Address, n.Data = a.Address, a.Data
	return n, a
}

func startNode(tb testing.TB, cfg nodeConfig) *node {
	tb.Helper()
	n, a := tryNode(tb, cfg)
	if a.Error != "" {
		tb.Fatalf("node: %s", a.Error)
	}
	return n
}

func (n *node) kill() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

func (n *node) read() answer {
	n.tb.Helper()
	line, err := n.out.ReadBytes('\n')
	if err != nil {
		n.tb.Fatalf("a node has died: %v", err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		n.tb.Fatalf("%v: %s", err, line)
	}
	return a
}

func (n *node) do(c command) answer {
	n.tb.Helper()
	encoded, err := json.Marshal(c)
	if err != nil {
		n.tb.Fatal(err)
	}
	if _, err := n.in.Write(append(encoded, '\n')); err != nil {
		n.tb.Fatalf("a node has died: %v", err)
	}
	return n.read()
}

// await asks for reports until done is content.
func (n *node) await(what string, done func(answer) bool) answer {
	n.tb.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		a := n.do(command{Op: "report"})
		if done(a) {
			return a
		}
		if time.Now().After(end) {
			n.tb.Fatalf("%s did not come; received %v, log:\n%s", what, a.Received, strings.Join(a.Log, "\n"))
		}
	}
}

func (n *node) awaitCount(sender string, count uint64) *received {
	n.tb.Helper()
	a := n.await(fmt.Sprintf("message %d of %s", count, sender), func(a answer) bool {
		return a.Received[sender] != nil && a.Received[sender].Count >= count
	})
	return a.Received[sender]
}
