package transport_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

// attacker can reach a node's port; tls is nil if the node has no TLS.
type attacker struct {
	address string
	tls     *tls.Config // with a worker's certificate
}

// grpc is a client of gRPC; raw messages are sent as they are.
func (a attacker) grpc(t *testing.T) *grpc.ClientConn {
	t.Helper()
	creds := insecure.NewCredentials()
	if a.tls != nil {
		creds = credentials.NewTLS(a.tls)
	}
	cc, err := grpc.NewClient(a.address, grpc.WithTransportCredentials(creds), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// dial opens a connection and, with TLS, does the handshake.
func (a attacker) dial(t *testing.T, alpn string) net.Conn {
	t.Helper()
	conn := a.dialRaw(t)
	if a.tls == nil {
		return conn
	}
	config := a.tls.Clone()
	config.NextProtos = []string{alpn}
	return tls.Client(conn, config)
}

func (a attacker) dialRaw(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", a.address, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// stream opens protoactor's stream; connected: it also sends a connect request.
func (a attacker) stream(t *testing.T, connected bool) grpc.ClientStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	stream, err := a.grpc(t).NewStream(ctx, &remote.Remoting_ServiceDesc.Streams[0], remote.Remoting_Receive_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	if connected {
		if err := stream.SendMsg(connectRequest(nil)); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(new(remote.RemoteMessage)); err != nil {
			t.Fatalf("a good connect request: %v", err)
		}
	}
	return stream
}

// ended returns how the other side ended an attack.
func ended(err error) string {
	switch {
	case err == nil:
		return "accepted"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "silence"
	case status.Code(err) != codes.Unknown:
		return status.Code(err).String()
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return "alert: " + op.Err.Error()
	}
	return "connection closed"
}

func readAll(conn net.Conn) string {
	got, err := io.ReadAll(conn)
	if err == nil {
		err = io.EOF
	}
	if len(got) > 0 {
		return fmt.Sprintf("%x, %s", got[:min(len(got), 8)], ended(err))
	}
	return ended(err)
}

// attack returns the answer.
type attack struct {
	name   string
	do     func(t *testing.T, a attacker) string
	want   string // in the answer
	log    string // in the log; "": nothing need be there
	onlyIn string // plain, tls; "": both
}

// rawMessage sends an encoded RemoteMessage after the connect request.
func rawMessage(data []byte) func(*testing.T, attacker) string {
	return func(t *testing.T, a attacker) string {
		stream := a.stream(t, true)
		m := new(remote.RemoteMessage)
		m.ProtoReflect().SetUnknown(data) // it is sent as it is
		_ = stream.SendMsg(m)             // RecvMsg has the reason
		return ended(stream.RecvMsg(new(remote.RemoteMessage)))
	}
}

func attacks() []attack {
	all := []attack{
		{name: "ListProcesses", want: "Unimplemented", log: "ListProcesses", do: func(t *testing.T, a attacker) string {
			_, err := remote.NewRemotingClient(a.grpc(t)).ListProcesses(t.Context(), &remote.ListProcessesRequest{Pattern: ".*"})
			return ended(err)
		}},
		{name: "GetProcessDiagnostics", want: "Unimplemented", log: "GetProcessDiagnostics", do: func(t *testing.T, a attacker) string {
			_, err := remote.NewRemotingClient(a.grpc(t)).GetProcessDiagnostics(t.Context(),
				&remote.GetProcessDiagnosticsRequest{Pid: actor.NewPID(a.address, "loader")})
			return ended(err)
		}},
		{name: "unknown method", want: "Unimplemented", do: func(t *testing.T, a attacker) string {
			return ended(a.grpc(t).Invoke(t.Context(), "/remote.Remoting/Nothing", &remote.ListProcessesRequest{}, &remote.ListProcessesResponse{}))
		}},
		{name: "unknown stream", want: "Unimplemented", do: func(t *testing.T, a attacker) string {
			stream, err := a.grpc(t).NewStream(t.Context(), &remote.Remoting_ServiceDesc.Streams[0], "/remote.Remoting/Other")
			if err != nil {
				t.Fatal(err)
			}
			return ended(stream.RecvMsg(new(remote.RemoteMessage)))
		}},
		{name: "batch before the connect request", want: "InvalidArgument", log: "before the connect request",
			do: func(t *testing.T, a attacker) string {
				stream := a.stream(t, false)
				_ = stream.SendMsg(goodBatch(nil))
				return ended(stream.RecvMsg(new(remote.RemoteMessage)))
			}},
		{name: "5 MiB", want: "ResourceExhausted", log: "larger than max", do: rawMessage(encode(message(transport.LinkActor,
			&wire.Envelope{Sender: "a", Target: strings.Repeat("x", 5<<20)})))},
		{name: "forged sender", onlyIn: "tls", want: "InvalidArgument", log: "it names",
			do: rawMessage(encode(message(transport.LinkActor, &wire.Envelope{Sender: "coordinator"})))},
		{name: "a million streams of headers", want: "connection closed", do: func(t *testing.T, a attacker) string {
			conn := a.dial(t, "h2")
			_, _ = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
			frame := append([]byte{0, 0, 16, 1, 0, 0, 0, 0, 1}, bytes.Repeat([]byte{0xff}, 16)...) // never ending headers
			for range 10_000 {
				if _, err := conn.Write(frame); err != nil {
					break
				}
			}
			_, err := io.Copy(io.Discard, conn)
			if err == nil {
				err = io.EOF
			}
			return ended(err)
		}},
		{name: "truncated frame", want: "Internal|Unknown|Canceled|connection closed", do: func(t *testing.T, a attacker) string {
			conn := a.dial(t, "h2")
			_, _ = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x40\x00\x00\x00"))
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			} else if tc, ok := conn.(*tls.Conn); ok {
				_ = tc.CloseWrite()
			}
			_, err := io.Copy(io.Discard, conn)
			if err == nil {
				err = io.EOF
			}
			return ended(err)
		}},
		{name: "a message that claims 4 GiB", want: "answered|connection closed", log: "larger than max",
			do: func(t *testing.T, a attacker) string {
				conn := a.dial(t, "h2")
				_, _ = conn.Write(slices.Concat(http2Start(), http2Frame(0, 0, 1, []byte("\x00\xff\xff\xff\xffxxx"))))
				for {
					kind, err := readFrame(conn)
					switch {
					case err != nil:
						return ended(err)
					case kind == 1 || kind == 3: // headers with the status, or a reset
						return "answered"
					}
				}
			}},
		{name: "a message that claims 4 MiB and ends early", want: "answered|connection closed|silence",
			do: func(t *testing.T, a attacker) string {
				conn := a.dial(t, "h2")
				_, _ = conn.Write(slices.Concat(http2Start(), http2Frame(0, 1, 1, []byte("\x00\x00\x40\x00\x00xxx"))))
				_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
				for {
					kind, err := readFrame(conn)
					if err != nil {
						return ended(err)
					}
					if kind == 1 || kind == 3 {
						return "answered"
					}
				}
			}},
		{name: "control, and nothing is read", want: "silence|connection closed", do: func(t *testing.T, a attacker) string {
			conn := a.dial(t, "h2")
			_, _ = conn.Write(http2Start())
			return flood(conn, bytes.Repeat(http2Frame(6, 0, 0, make([]byte, 8)), 1_000)) // each ping has an answer
		}},
		{name: "a stream, and nothing is read", want: "silence", do: func(t *testing.T, a attacker) string {
			conn, err := transport.Dialer{TLS: a.tls}.Dial(t.Context(), a.address, "echo")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			return flood(conn, make([]byte, 64<<10))
		}},
		{name: "silence", want: "connection closed", log: "timeout|deadline",
			do: func(t *testing.T, a attacker) string { return readAll(a.dialRaw(t)) }},
		{name: "slow handshake", want: "connection closed|alert", do: func(t *testing.T, a attacker) string {
			conn := a.dialRaw(t)
			for _, b := range slowly(a) {
				if _, err := conn.Write([]byte{b}); err != nil {
					break
				}
				time.Sleep(400 * time.Millisecond) // slowness is the attack
			}
			return readAll(conn)
		}},
		{name: "plain HTTP", want: "connection closed|48545450", log: "refused", do: func(t *testing.T, a attacker) string {
			conn := a.dialRaw(t)
			_, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
			return readAll(conn)
		}},
		{name: "nonsense", want: "connection closed|alert|15030", log: "refused", do: func(t *testing.T, a attacker) string {
			conn := a.dialRaw(t)
			_, _ = conn.Write(bytes.Repeat([]byte{0xa5}, 1<<16))
			return readAll(conn)
		}},
		{name: "a name of 255 bytes", onlyIn: "plain", want: "connection closed", log: "255 bytes", do: func(t *testing.T, a attacker) string {
			conn := a.dialRaw(t)
			_, _ = conn.Write(append([]byte(transport.Magic+"\xff"), bytes.Repeat([]byte("x"), 255)...))
			return readAll(conn)
		}},
		{name: "unknown protocol", want: "01, connection closed", onlyIn: "plain", log: "unknown protocol",
			do: func(t *testing.T, a attacker) string {
				conn := a.dialRaw(t)
				_, _ = conn.Write([]byte(transport.Magic + "\x03foo"))
				return readAll(conn)
			}},
		{name: "TLS to one without", onlyIn: "plain", want: "connection closed", log: "listens without",
			do: func(t *testing.T, a attacker) string {
				conn := tls.Client(a.dialRaw(t), &tls.Config{InsecureSkipVerify: true})
				return ended(conn.Handshake())
			}},
		{name: "wrong ALPN", onlyIn: "tls", want: "no application protocol", log: "unsupported application protocols",
			do: func(t *testing.T, a attacker) string {
				return readAll(a.dial(t, "foo"))
			}},
		{name: "a browser", onlyIn: "tls", want: "connection closed", log: "unknown protocol", do: func(t *testing.T, a attacker) string {
			return readAll(a.dial(t, "http/1.1"))
		}},
		{name: "no ALPN", onlyIn: "tls", want: "connection closed", log: "unknown protocol", do: func(t *testing.T, a attacker) string {
			config := a.tls.Clone()
			config.NextProtos = nil
			return readAll(tls.Client(a.dialRaw(t), config))
		}},
		{name: "no TLS to one with it", onlyIn: "tls", want: "connection closed|15030", log: "first record does not look like a TLS handshake",
			do: func(t *testing.T, a attacker) string {
				conn := a.dialRaw(t)
				_, _ = conn.Write([]byte(transport.Magic + "\x04echo"))
				return readAll(conn)
			}},
	}
	for _, c := range forbiddenMessages() {
		want, log := "InvalidArgument|Internal", c.why
		if len(c.data) > transport.RecvBytesMax {
			want, log = "ResourceExhausted", "larger than max"
		}
		if strings.Contains(c.name, "connect request") || strings.Contains(c.name, "long") {
			log = "forbidden message"
		}
		all = append(all, attack{name: "message/" + c.name, want: want, log: log, do: rawMessage(c.data)})
	}
	return all
}

// http2Frame is one of a kind, with flags, on a stream.
func http2Frame(kind, flags, stream byte, payload []byte) []byte {
	return append([]byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags, 0, 0, 0, stream}, payload...)
}

// http2Start is how a client begins that calls protoactor's stream.
func http2Start() []byte {
	var headers []byte
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", remote.Remoting_Receive_FullMethodName},
		{":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		headers = append(headers, 0, byte(len(h[0])))
		headers = append(headers, h[0]...)
		headers = append(headers, byte(len(h[1])))
		headers = append(headers, h[1]...)
	}
	return slices.Concat([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), http2Frame(4, 0, 0, nil), http2Frame(1, 4, 1, headers))
}

// readFrame reads one, and returns its kind.
func readFrame(conn net.Conn) (kind byte, err error) {
	var head [9]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return 0, err
	}
	_, err = io.CopyN(io.Discard, conn, int64(head[0])<<16|int64(head[1])<<8|int64(head[2]))
	return head[3], err
}

// flood writes without reading until the other side accepts no more.
func flood(conn net.Conn, block []byte) string {
	for {
		_ = conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
		if _, err := conn.Write(block); err != nil {
			return ended(err)
		}
	}
}

// slowly returns bytes that never complete a handshake.
func slowly(a attacker) []byte {
	if a.tls == nil {
		return []byte(transport.Magic + "\x40xxxxxxxxxxxxxx")
	}
	return append([]byte{22, 3, 1, 2, 0, 1, 0, 1, 0xfc}, make([]byte, 20)...)
}

// TestAttacks: attacks are refused, and the process works as before afterwards. With -v the log has the answer to each.
func TestAttacks(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	worker := ca.good("a", "worker")
	for _, mode := range []string{"plain", "tls"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			for _, c := range attacks() {
				if c.onlyIn != "" && c.onlyIn != mode {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					var cfg nodeConfig
					if mode == "tls" {
						cfg = ca.good("victim", "worker")
					}
					n := startNode(t, cfg)
					a := attacker{address: n.Address}
					if mode == "tls" {
						a.tls = ca.client(worker)
					}
					before := n.works(t, a, 0)
					got := c.do(t, a)
					t.Logf("answered: %s", got)
					matches(t, "answer", got, c.want)
					if c.log != "" {
						n.awaitLog(c.log)
					}
					after := n.works(t, a, 1)
					if after.Heap > before.Heap+4<<20 {
						t.Errorf("the heap has grown from %d to %d bytes", before.Heap, after.Heap)
					}
				})
			}
		})
	}
}

func matches(t *testing.T, what, got, want string) {
	t.Helper()
	for _, w := range strings.Split(want, "|") {
		if strings.Contains(got, w) {
			return
		}
	}
	t.Errorf("%s: got %s; want %s", what, got, want)
}

func (n *node) awaitLog(want string) {
	n.tb.Helper()
	n.await("a log line with "+want, func(a answer) bool {
		return slices.ContainsFunc(strings.Split(want, "|"), func(w string) bool { return strings.Contains(strings.Join(a.Log, "\n"), w) })
	})
}

// works checks that a node accepts an envelope and a stream, and returns its statistics.
func (n *node) works(t *testing.T, a attacker, seq uint64) answer {
	t.Helper()
	stream := a.stream(t, true)
	if err := stream.SendMsg(message(transport.LinkActor, &wire.Envelope{Sender: "a", Seq: seq + 1})); err != nil {
		t.Fatal(err)
	}
	n.awaitCount("a", seq+1)
	conn, err := transport.Dialer{TLS: a.tls}.Dial(t.Context(), n.Address, "echo")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	got := make([]byte, 5)
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Fatalf("echo: %q, %v", got, err)
	}
	return n.do(command{Op: "stats"})
}

// TestCertificates: a process without a certificate, or with a wrong one, may only join.
func TestCertificates(t *testing.T) {
	t.Parallel()
	ca, foreign := newAuthority(t), newAuthority(t)
	foreignClient := foreign.client(foreign.good("worker", "worker"))
	foreignClient.RootCAs = ca.client(nodeConfig{}).RootCAs
	for _, c := range []struct {
		name     string
		config   *tls.Config
		protocol string
		want     string // "": accepted
		log      string
	}{
		{"good", ca.client(ca.good("worker", "worker")), "echo", "", ""},
		{"none to join", ca.client(nodeConfig{}), "join", "", ""},
		{"none for a stream", ca.client(nodeConfig{}), "echo", "needs a certificate", "echo: it needs a certificate"},
		{"none for control", ca.client(nodeConfig{}), "h2", "", "control: it needs a certificate"},
		{"foreign", foreignClient, "echo", "unknown certificate authority", "unknown authority"},
		{"foreign to join", foreignClient, "join", "unknown certificate authority", "unknown authority"},
		{"expired", ca.client(ca.issue("worker", "worker", time.Now().Add(-time.Minute))), "echo", "expired", "expired"},
		{"expired for control", ca.client(ca.issue("worker", "worker", time.Now().Add(-time.Minute))), "h2", "expired", "expired"},
		{"without a name", ca.client(ca.good("", "worker")), "echo", "needs a certificate", "0 bytes"},
		{"a long name", ca.client(ca.good(strings.Repeat("x", 60)+"yyyyy", "worker")), "echo", "needs a certificate", "65 bytes"},
		{"wrong role", ca.client(ca.good("worker", "worker")), "operate", "its role", "operate: its role may not use this protocol: worker has the role"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := startNode(t, ca.good("victim", "worker"))
			if c.protocol == "h2" {
				config := c.config.Clone()
				config.NextProtos = []string{"h2"}
				conn := tls.Client(attacker{address: n.Address}.dialRaw(t), config)
				_, err := conn.Read(make([]byte, 1))
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("control: %v; want %s", err, c.want)
				}
			} else {
				conn, err := transport.Dialer{TLS: c.config}.Dial(t.Context(), n.Address, c.protocol)
				switch {
				case err == nil:
					_ = conn.Close()
					if c.want != "" {
						t.Errorf("accepted; want %s", c.want)
					}
				case c.want == "" || !errors.Is(err, transport.ErrRefused) || !strings.Contains(err.Error(), c.want):
					t.Errorf("got %v; want %s", err, c.want)
				}
			}
			if c.log != "" {
				n.awaitLog(c.log)
			}
		})
	}
}

// TestManyConnections: many silent connections are refused at once or after a time, and cost no memory. The number of log
// lines per second is limited.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	count := 2_000
	if os.Getenv("TROUPE_LONG_TESTS") != "" {
		count = 10_000
	}
	for _, mode := range []string{"plain", "tls"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var cfg nodeConfig
			a := attacker{}
			if mode == "tls" {
				ca := newAuthority(t)
				cfg = ca.good("victim", "worker")
				a.tls = ca.client(ca.good("a", "worker"))
			}
			n := startNode(t, cfg)
			a.address = n.Address
			before := n.works(t, a, 0)
			start := time.Now()
			conns := make([]net.Conn, 0, count)
			defer func() {
				for _, c := range conns {
					_ = c.Close()
				}
			}()
			for range count {
				c, err := net.Dial("tcp", n.Address)
				if errors.Is(err, syscall.EMFILE) {
					t.Skipf("%d connections are all that may be open here", len(conns))
				}
				if err != nil {
					t.Fatal(err)
				}
				conns = append(conns, c)
			}
			during := n.do(command{Op: "stats"})
			// Those that are let in are closed when they have said nothing for the limit's time.
			for _, c := range conns {
				_ = c.SetReadDeadline(time.Now().Add(time.Minute))
				if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("a silent connection was not closed: %v", err)
				}
			}
			took := time.Since(start)
			after := n.works(t, a, 1)
			log := n.do(command{Op: "report"}).Log
			t.Logf("%d connections: heap %d, then %d, then %d; goroutines %d, %d, %d; %d lines in %v", count,
				before.Heap, during.Heap, after.Heap, before.Goroutines, during.Goroutines, after.Goroutines, len(log), took)
			if grown := int64(during.Heap) - int64(before.Heap); grown > 16<<20 {
				t.Errorf("the heap has grown by %d bytes", grown)
			}
			if after.Goroutines > before.Goroutines+20 {
				t.Errorf("%d goroutines, %d before", after.Goroutines, before.Goroutines)
			}
			if most := (transport.LimitLogLines + 1) * (int(took/time.Second) + 2); len(log) > most {
				t.Errorf("%d lines logged in %v", len(log), took)
			}
			n.awaitLog("left out")
		})
	}
}

// TestSlowReader: the queue for the handler is bounded, and loses nothing.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	n := startNode(t, nodeConfig{SlowEnvelopes: true})
	stream := attacker{address: n.Address}.stream(t, true)
	const count, size = 200, 1 << 20
	sent := make(chan error, 1)
	go func() {
		for seq := range uint64(count) {
			if err := stream.SendMsg(message(transport.LinkActor, &wire.Envelope{Sender: "worker", Seq: seq + 1,
				Target: strings.Repeat("x", size)})); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	var last uint64
	for same := 0; same < 20; time.Sleep(20 * time.Millisecond) { // until it grows no more
		if got := n.do(command{Op: "stats"}).Heap; got > last+size/2 {
			last, same = got, 0
		} else {
			same++
		}
	}
	if limit := uint64(transport.LimitUnhandledBytes + 32<<20); last > limit {
		t.Errorf("%d bytes wait; want no more than %d", last, limit)
	}
	t.Logf("%d MiB sent, %d MiB wait", count, last>>20)
	n.do(command{Op: "resume"})
	if got := n.awaitCount("worker", count); got.Disorder != 0 || got.Bytes != count*size {
		t.Errorf("%+v", got)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestDeadAddress: the queue for an address that doesn't answer is bounded.
func TestDeadAddress(t *testing.T) {
	t.Parallel()
	n := startNode(t, nodeConfig{})
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts nothing, and so says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	before := n.do(command{Op: "stats"})
	for range 5 {
		got := n.do(command{Op: "send", To: silent.Addr().String(), Sender: "a", From: 1, N: 20_000, Bytes: 10_000})
		t.Logf("20,000 messages of 10 kB: %v", got.Took)
	}
	after := n.do(command{Op: "stats"})
	t.Logf("heap %d MiB, then %d MiB", before.Heap>>20, after.Heap>>20)
	if grown := int64(after.Heap) - int64(before.Heap); grown > transport.LimitUnwrittenBytes*5/4 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	n.awaitLog("already wait for this address")
	// What waited is lost when the limit's time is over, and the bound begins anew.
	_ = silent.Close()
	other := startNode(t, nodeConfig{Listen: silent.Addr().String()})
	end := time.Now().Add(2 * time.Minute)
	for seq := uint64(1_000_000); ; seq++ {
		n.do(command{Op: "send", To: other.Address, Sender: "b", From: seq, N: 1})
		if got := other.do(command{Op: "report"}); got.Received["b"] != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nothing arrives any more")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
