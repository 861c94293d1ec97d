package lane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = time.Minute

func idOf(name string) ID {
	sum := sha256.Sum256([]byte(name))
	return ID(sum[:16])
}

// world dials between nodes of one process by name. wrap may put faults around a dialled connection.
type world struct {
	t    testing.TB
	mu   sync.Mutex
	at   map[string]*Node
	link func() (dialled, accepted net.Conn)
	wg   sync.WaitGroup
}

func newWorld(t testing.TB, link func() (net.Conn, net.Conn)) *world {
	return &world{t: t, at: make(map[string]*Node), link: link}
}

func (w *world) node(name string, config Config) *Node {
	config.Self = idOf(name)
	config.Dial = w.dial
	n := New(config)
	w.mu.Lock()
	w.at[name] = n
	w.mu.Unlock()
	return n
}

func (w *world) dial(_ context.Context, address string) (net.Conn, error) {
	w.mu.Lock()
	n := w.at[address]
	w.mu.Unlock()
	if n == nil {
		return nil, fmt.Errorf("nobody at %s", address)
	}
	dialled, accepted := w.link()
	w.wg.Add(1)
	go func() { // ends with the connection
		defer w.wg.Done()
		n.Accept(accepted, nil)
	}()
	return dialled, nil
}

func (w *world) close() {
	w.mu.Lock()
	nodes := w.at
	w.at = nil
	w.mu.Unlock()
	for _, n := range nodes {
		n.Close()
	}
	w.wg.Wait()
}

func pipeLink() (net.Conn, net.Conn) { return net.Pipe() }

// tcpLink connects over loopback.
func tcpLink(t testing.TB) func() (net.Conn, net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var mu sync.Mutex
	return func() (net.Conn, net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		dialled, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return dialled, accepted
	}
}

// arrival is a message at the receiver.
type arrival struct {
	from   ID
	header []byte
	parts  [][]byte
	err    error
}

// collect takes everything and hands it over when it is there.
func collect(to chan<- arrival) Take {
	return func(from ID, header []byte, lens []int) ([][]byte, func(error), error) {
		a := arrival{from: from, header: bytes.Clone(header), parts: make([][]byte, len(lens))}
		for k, n := range lens {
			a.parts[k] = make([]byte, n)
		}
		return a.parts, func(err error) { a.err = err; to <- a }, nil
	}
}

func wait[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func randomParts(r *rand.Rand, sizes ...int) [][]byte {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], r.Uint64())
	random := rand.NewChaCha8(seed)
	parts := make([][]byte, len(sizes))
	for k, n := range sizes {
		parts[k] = make([]byte, n)
		_, _ = random.Read(parts[k])
	}
	return parts
}

// TestRoundTrip: messages of all shapes arrive unchanged.
func TestRoundTrip(t *testing.T) {
	shapes := map[string][]int{
		"no parts":    {},
		"empty parts": {0, 0, 0},
		"small":       {1, 0, 5, 4096},
		"a piece":     {LimitPiece},
		"pieces":      {3*LimitPiece + 17, 0, 5, LimitPiece},
		"many parts":  make([]int, 5000),
	}
	for k := range shapes["many parts"] {
		shapes["many parts"][k] = k % 700
	}
	for _, link := range []string{"pipe", "tcp"} {
		for _, checksum := range []bool{false, true} {
			for _, streams := range []int{1, 3} {
				for _, noShared := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/checksum=%v/streams=%d/noshared=%v", link, checksum, streams, noShared), func(t *testing.T) {
						connect := pipeLink
						if link == "tcp" {
							connect = tcpLink(t)
						}
						w := newWorld(t, connect)
						defer w.close()
						config := Config{Checksum: checksum, Streams: streams, NoSharedMemory: noShared}
						a, b := w.node("a", config), w.node("b", config)
						a.SetPeer(idOf("b"), "b")
						got := make(chan arrival, 1)
						b.Open(ID{1}, collect(got))
						g := a.Open(ID{1}, nil)
						r := rand.New(rand.NewPCG(1, 2))
						for name, sizes := range shapes {
							parts := randomParts(r, sizes...)
							acked := make(chan error, 1)
							g.Send(idOf("b"), []byte(name), parts, func(err error) { acked <- err })
							m := wait(t, got)
							if err := wait(t, acked); err != nil {
								t.Fatal(err)
							}
							if m.err != nil || m.from != idOf("a") || string(m.header) != name || !equalParts(m.parts, parts) {
								t.Fatalf("%s: other bytes came, or %v", name, m.err)
							}
						}
					})
				}
			}
		}
	}
}

func equalParts(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for k := range a {
		if !bytes.Equal(a[k], b[k]) {
			return false
		}
	}
	return true
}

// TestRefusals: messages that can't be sent or are not wanted are refused.
func TestRefusals(t *testing.T) {
	w := newWorld(t, pipeLink)
	defer w.close()
	a, b := w.node("a", Config{}), w.node("b", Config{})
	a.SetPeer(idOf("b"), "b")
	g := a.Open(ID{1}, nil)
	result := make(chan error, 1)
	done := func(err error) { result <- err }
	g.Send(idOf("b"), make([]byte, LimitHeaderBytes+1), nil, done)
	if err := wait(t, result); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a header too long: %v", err)
	}
	g.Send(idOf("b"), nil, make([][]byte, LimitParts+1), done)
	if err := wait(t, result); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too many parts: %v", err)
	}
	// No group at the receiver: thrown away and acknowledged.
	g.Send(idOf("b"), nil, [][]byte{make([]byte, 100)}, done)
	if err := wait(t, result); err != nil {
		t.Errorf("no group there: %v", err)
	}
	b.Open(ID{1}, func(ID, []byte, []int) ([][]byte, func(error), error) { return nil, nil, errors.New("not now") })
	g.Send(idOf("b"), nil, [][]byte{make([]byte, 100)}, done)
	if err := wait(t, result); err != nil {
		t.Errorf("refused by take: %v", err)
	}
	a.Forget(idOf("b"))
	g.Send(idOf("b"), nil, nil, done)
	if err := wait(t, result); !errors.Is(err, ErrGone) {
		t.Errorf("to a forgotten peer: %v", err)
	}
	for range LimitPending {
		g.Send(ID{9}, nil, nil, nil)
	}
	g.Send(ID{9}, nil, nil, done)
	if err := wait(t, result); !errors.Is(err, ErrFull) {
		t.Errorf("beyond the bound: %v", err)
	}
	g.Close()
	g.Send(idOf("b"), nil, nil, done)
	if err := wait(t, result); !errors.Is(err, ErrClosed) {
		t.Errorf("in a closed group: %v", err)
	}
}
