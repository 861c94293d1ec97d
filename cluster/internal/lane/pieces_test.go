package lane

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
)

// loans are the memory of pieces, of which there are few.
type loans struct {
	leaves bool
	free   chan *loan
}

func newLoans(n int, leaves bool) *loans {
	l := &loans{leaves: leaves, free: make(chan *loan, n)}
	for range n {
		l.free <- &loan{from: l, memory: make([]byte, LimitPiece), result: make(chan error, 1)}
	}
	return l
}

// loan is a piece.
type loan struct {
	from   *loans
	of     *far
	memory []byte
	result chan error
}

// far is a payload that the lane can't read directly.
type far struct {
	loans *loans
	bytes []byte
	begun func(offset int) // when a copy begins; nil: nobody asks
	fail  error            // of every copy
}

func (f *far) Len() int { return len(f.bytes) }

func (f *far) Lend(cancel <-chan struct{}) (Piece, error) {
	var l *loan
	select {
	case l = <-f.loans.free:
	default:
		if cancel == nil {
			return nil, nil
		}
		select {
		case l = <-f.loans.free:
		case <-cancel:
			return nil, nil
		}
	}
	l.of = f
	return l, nil
}

func (l *loan) Memory() []byte { return l.memory }

func (l *loan) Copy(offset, n int) {
	if l.of.begun != nil {
		l.of.begun(offset)
	}
	go func() { // ends with the copy
		if l.from.leaves {
			copy(l.memory[:n], l.of.bytes[offset:])
		} else {
			copy(l.of.bytes[offset:], l.memory[:n])
		}
		l.result <- l.of.fail
	}()
}

func (l *loan) Wait() error { return <-l.result }

func (l *loan) Release() {
	copy(l.memory, poisonBytes)
	l.of = nil
	l.from.free <- l
}

// TestPieces: payloads that pass through little memory on loan arrive unchanged over every kind of connection, and all memory
// is returned.
func TestPieces(t *testing.T) {
	for _, link := range []string{"pipe", "tcp"} {
		for _, config := range []Config{{Streams: 1}, {Streams: 3, Checksum: true}, {Streams: 2, NoSharedMemory: true},
			{Streams: 3, Checksum: true, NoSharedMemory: true}} {
			t.Run(fmt.Sprintf("%s/%+v", link, config), func(t *testing.T) {
				connect := pipeLink
				if link == "tcp" {
					connect = tcpLink(t)
				}
				w := newWorld(t, connect)
				defer w.close()
				a, b := w.node("a", config), w.node("b", config)
				a.SetPeer(idOf("b"), "b")
				out, in := newLoans(2, true), newLoans(2, false)
				type got struct {
					bytes []byte
					err   error
				}
				came := make(chan got, 16)
				b.OpenPlaces(ID{1}, func(_ ID, header []byte, lens []int) (Place, func(error), error) {
					p := Place{Parts: [][]byte{make([]byte, lens[0])}}
					bytes := p.Parts[0]
					if header[0] == 'p' {
						p = Place{Pieces: &far{loans: in, bytes: bytes}}
					}
					return p, func(err error) { came <- got{bytes, err} }, nil
				})
				g := a.Open(ID{1}, nil)
				r := rand.New(rand.NewPCG(1, 2))
				for _, size := range []int{0, 1, 100_000, LimitPiece, 5*LimitPiece + 17} {
					for _, header := range []string{"parts", "pieces"} {
						for _, leaves := range []bool{true, false} {
							parts := randomParts(r, size)
							acked := make(chan error, 1)
							if leaves {
								g.SendPieces(idOf("b"), []byte(header), &far{loans: out, bytes: parts[0]}, func(err error) { acked <- err })
							} else {
								g.Send(idOf("b"), []byte(header), parts, func(err error) { acked <- err })
							}
							m := wait(t, came)
							if err := wait(t, acked); err != nil || m.err != nil {
								t.Fatal(err, m.err)
							}
							if !bytes.Equal(m.bytes, parts[0]) {
								t.Fatalf("%d bytes, to %s: others came", size, header)
							}
						}
					}
				}
				g.Close()
				if len(out.free) != 2 || len(in.free) != 2 {
					t.Errorf("%d and %d pieces are back of 2 each", len(out.free), len(in.free))
				}
			})
		}
	}
}

// gated is a connection whose long writes wait.
type gated struct {
	net.Conn
	open <-chan struct{}
}

func (g *gated) Write(p []byte) (int, error) {
	if len(p) > LimitPiece/2 {
		<-g.open
	}
	return g.Conn.Write(p)
}

// TestPiecesOverlap: the copy of the next piece begins while a piece is being written.
func TestPiecesOverlap(t *testing.T) {
	open := make(chan struct{})
	w := newWorld(t, func() (net.Conn, net.Conn) {
		a, b := net.Pipe()
		return &gated{a, open}, b
	})
	defer w.close()
	config := Config{Streams: 1, NoSharedMemory: true}
	a, b := w.node("a", config), w.node("b", config)
	a.SetPeer(idOf("b"), "b")
	came := make(chan arrival, 1)
	b.Open(ID{1}, collect(came))
	begun, acked := make(chan int, 16), make(chan error, 1)
	payload := &far{loans: newLoans(8, true), bytes: make([]byte, 4*LimitPiece), begun: func(offset int) { begun <- offset / LimitPiece }}
	g := a.Open(ID{1}, nil)
	g.SendPieces(idOf("b"), nil, payload, func(err error) { acked <- err })
	for piece := range 2 { // no byte of the first one can have been written
		if got := wait(t, begun); got != piece {
			t.Fatalf("piece %d is copied, want %d", got, piece)
		}
	}
	if len(begun) > 0 {
		t.Errorf("piece %d is copied while the first one waits", <-begun)
	}
	close(open)
	for piece := 2; piece < 4; piece++ {
		if got := wait(t, begun); got != piece {
			t.Errorf("piece %d is copied, want %d", got, piece)
		}
	}
	if err := wait(t, acked); err != nil {
		t.Error(err)
	}
	if m := wait(t, came); m.err != nil {
		t.Error(m.err)
	}
}

// TestPiecesFail: if a payload can't be copied, only its message fails, and only at the end where the copy failed.
func TestPiecesFail(t *testing.T) {
	broken := errors.New("the device is gone")
	for _, leaves := range []bool{true, false} {
		t.Run(fmt.Sprint("leaves=", leaves), func(t *testing.T) {
			w := newWorld(t, tcpLink(t))
			defer w.close()
			config := Config{Streams: 2, Checksum: true}
			a, b := w.node("a", config), w.node("b", config)
			a.SetPeer(idOf("b"), "b")
			out, in := newLoans(4, true), newLoans(4, false)
			came := make(chan error, 4)
			b.OpenPlaces(ID{1}, func(_ ID, header []byte, lens []int) (Place, func(error), error) {
				f := &far{loans: in, bytes: make([]byte, lens[0])}
				if !leaves && header[0] == 'x' {
					f.fail = broken
				}
				return Place{Pieces: f}, func(err error) { came <- err }, nil
			})
			g := a.Open(ID{1}, nil)
			acked := make(chan error, 1)
			for _, header := range []string{"x", "y"} {
				f := &far{loans: out, bytes: make([]byte, 3*LimitPiece)}
				if leaves && header == "x" {
					f.fail = broken
				}
				g.SendPieces(idOf("b"), []byte(header), f, func(err error) { acked <- err })
				sent, arrived := wait(t, acked), error(nil)
				if !leaves || header == "y" { // else it may be withdrawn before anything of it comes
					arrived = wait(t, came)
				}
				if failed := errors.Join(sent, arrived); header == "y" && failed != nil ||
					header == "x" && (!errors.Is(failed, broken) || !errors.Is(failed, ErrPieces) || leaves != (sent != nil)) {
					t.Errorf("message %s: %v, %v", header, sent, arrived)
				}
			}
			g.Close()
			if len(out.free) != 4 || len(in.free) != 4 {
				t.Errorf("%d and %d pieces are back of 4 each", len(out.free), len(in.free))
			}
		})
	}
}

// TestPiecesAllocate: the lane's allocations for a message in pieces don't grow with its size.
func TestPiecesAllocate(t *testing.T) {
	const rounds = 20
	allocated := func(size int) uint64 {
		w := newWorld(t, tcpLink(t))
		defer w.close()
		config := Config{Streams: 2, NoSharedMemory: true}
		a, b := w.node("a", config), w.node("b", config)
		a.SetPeer(idOf("b"), "b")
		parts := [][]byte{make([]byte, size)}
		b.Open(ID{1}, func(ID, []byte, []int) ([][]byte, func(error), error) { return parts, func(error) {}, nil })
		g := a.Open(ID{1}, nil)
		payload, acked := &near{far{loans: newLoans(4, true), bytes: make([]byte, size)}}, make(chan error, 1)
		send := func() {
			g.SendPieces(idOf("b"), nil, payload, func(err error) { acked <- err })
			if err := wait(t, acked); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			send()
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range rounds {
			send()
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / rounds
	}
	if small, large := allocated(2*LimitPiece), allocated(32*LimitPiece); large > small+16<<10 {
		t.Errorf("%d bytes are allocated for a message of 2 MiB, %d for one of 32", small, large)
	}
}

// near is a far payload whose copies need no goroutine.
type near struct{ far }

func (n *near) Lend(cancel <-chan struct{}) (Piece, error) {
	p, err := n.far.Lend(cancel)
	if l, ok := p.(*loan); ok {
		return (*nearLoan)(l), err
	}
	return nil, err
}

type nearLoan loan

func (l *nearLoan) Memory() []byte { return l.memory }
func (l *nearLoan) Copy(offset, n int) {
	copy(l.memory[:n], l.of.bytes[offset:])
	l.result <- nil
}
func (l *nearLoan) Wait() error { return <-l.result }
func (l *nearLoan) Release()    { l.from.free <- (*loan)(l) }

// ledgerLoans are what messages of a ledger pass through: of those of one part, each way half.
type ledgerLoans struct {
	once    sync.Once
	out, in *loans
}

func (l *ledgerLoans) of(leaves bool) *loans {
	l.once.Do(func() { l.out, l.in = newLoans(2, true), newLoans(2, false) })
	if leaves {
		return l.out
	}
	return l.in
}
