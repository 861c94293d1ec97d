package lane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

func sumOf(parts [][]byte) uint32 {
	sum := uint32(0)
	for _, part := range parts {
		sum = crc32.Update(sum, crcTable, binary.LittleEndian.AppendUint64(nil, uint64(len(part))))
		sum = crc32.Update(sum, crcTable, part)
	}
	return sum
}

// poison overwrites memory.
func poison(parts [][]byte) {
	for _, part := range parts {
		for k := 0; k < len(part); {
			k += copy(part[k:], poisonBytes)
		}
	}
}

var poisonBytes = bytes.Repeat([]byte{0xEE}, 64<<10)

// ledger counts what happens to every message of a test, and overwrites memory as soon as it is the caller's again.
type ledger struct {
	mu      sync.Mutex
	changed sync.Cond
	entries []*entry
	open    int // done functions that weren't called: of Send, and of take
	wrong   []string
	loans   ledgerLoans
	kept    []kept // payloads that nobody has returned
}

type entry struct {
	sum         uint32
	sent, taken int // calls of done of Send; calls of take
	sentErr     error
	arrived     int
	arrivedErr  error
	parts       [][]byte // the receiver's
	group       ID
	to          ID
}

func newLedger() *ledger {
	l := &ledger{}
	l.changed.L = &l.mu
	return l
}

func (l *ledger) fail(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

func (l *ledger) send(g *Group, to ID, parts [][]byte) {
	l.mu.Lock()
	e := &entry{sum: sumOf(parts), group: g.id, to: to}
	number := len(l.entries)
	header := binary.LittleEndian.AppendUint64(nil, uint64(number))
	l.entries = append(l.entries, e)
	l.open++
	l.mu.Unlock()
	list := append([][]byte(nil), parts...)
	send := func(done func(error)) { g.Send(to, header, list, done) }
	if len(parts) == 1 && number&1 != 0 {
		send = func(done func(error)) { g.SendPieces(to, header, &far{loans: l.loans.of(true), bytes: parts[0]}, done) }
	} else if number%3 != 0 {
		left := false
		send = func(done func(error)) {
			g.SendLeaving(to, header, list, func(free bool) {
				if free {
					poison(parts)
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				if left || e.sent > 0 {
					l.fail("left was called twice (%v) or after done", left)
				}
				left = true
			}, done)
		}
	}
	send(func(err error) {
		poison(parts)
		l.mu.Lock()
		defer l.mu.Unlock()
		if e.sent++; e.sent > 1 {
			l.fail("done of Send was called %d times", e.sent)
		}
		e.sentErr = err
		l.open--
		l.changed.Broadcast()
	})
	clear(header) // header and list are copied
	clear(list)
}

func (l *ledger) take(_ ID, header []byte, lens []int) (Place, func(error), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	number := binary.LittleEndian.Uint64(header)
	e := l.entries[number]
	if e.taken++; e.taken > 1 {
		l.fail("take was called %d times for a message", e.taken)
	}
	parts := make([][]byte, len(lens))
	for k, n := range lens {
		parts[k] = make([]byte, n)
	}
	e.parts = parts
	l.open++
	place := Place{Parts: parts}
	if len(parts) == 1 && number&2 != 0 {
		place = Place{Pieces: &far{loans: l.loans.of(false), bytes: parts[0]}}
	}
	return place, func(err error) {
		sum := sumOf(parts)
		poison(parts)
		l.mu.Lock()
		defer l.mu.Unlock()
		if e.arrived++; e.arrived > 1 {
			l.fail("done of take was called %d times", e.arrived)
		}
		if e.arrivedErr = err; err == nil && sum != e.sum {
			l.fail("other bytes arrived")
		}
		l.open--
		l.changed.Broadcast()
	}, nil
}

// kept is a payload where it lies in shared memory.
type kept struct {
	loan  *Loan
	parts [][]byte
	sum   uint32
}

// takeLoan keeps some payloads in shared memory until long after their message, and some until after the nodes are closed.
func (l *ledger) takeLoan(from ID, header []byte, lens []int, loan *Loan) ([][]byte, func(error), error) {
	number := binary.LittleEndian.Uint64(header)
	if loan == nil || number%4 == 0 {
		place, done, err := l.take(from, header, lens)
		if place.Pieces != nil {
			place.Parts = [][]byte{place.Pieces.(*far).bytes}
		}
		return place.Parts, done, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[number]
	if e.taken++; e.taken > 1 {
		l.fail("take was called %d times for a message", e.taken)
	}
	k := kept{loan: loan, sum: e.sum}
	memory := loan.Keep()
	for _, n := range lens {
		k.parts = append(k.parts, memory[:n:n])
		memory = memory[n:]
	}
	l.open++
	return nil, func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if e.arrived++; e.arrived > 1 {
			l.fail("done of take was called %d times", e.arrived)
		}
		e.arrivedErr = err
		if l.kept = append(l.kept, k); number%4 == 1 {
			l.returns(0)
		}
		l.open--
		l.changed.Broadcast()
	}, nil
}

// returns gives back a kept payload, and checks that it is unchanged.
func (l *ledger) returns(at int) {
	k := l.kept[at]
	l.kept = append(l.kept[:at], l.kept[at+1:]...)
	if sumOf(k.parts) != k.sum {
		l.fail("a payload that is kept has changed")
	}
	poison(k.parts)
	k.loan.Return()
}

// settle waits until every done function was called.
func (l *ledger) settle() bool {
	timer := time.AfterFunc(patience, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.fail("after %v, %d done functions weren't called", patience, l.open)
		l.changed.Broadcast()
	})
	defer timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.open > 0 && len(l.wrong) == 0 {
		l.changed.Wait()
	}
	return len(l.wrong) == 0
}

// TestExactlyOnce: whatever breaks, a message arrives once with the same bytes. Closed groups and forgotten peers don't disturb
// others, and returned memory is not touched.
func TestExactlyOnce(t *testing.T) {
	for _, over := range []string{"memory", "tcp", "tls"} {
		t.Run(over, func(t *testing.T) {
			var tcp func() (net.Conn, net.Conn)
			if over != "memory" {
				tcp = tcpLink(t)
			}
			rapid.Check(t, func(t *rapid.T) { exactlyOnce(t, tcp, over == "tls") })
		})
	}
}

func exactlyOnce(t *rapid.T, tcp func() (net.Conn, net.Conn), secure bool) {
	seed := rapid.Uint64().Draw(t, "seed")
	config := Config{
		Streams:        rapid.IntRange(1, 4).Draw(t, "streams"),
		Checksum:       rapid.Bool().Draw(t, "checksum"),
		NoSharedMemory: rapid.Bool().Draw(t, "no shared memory"),
	}
	f := &faults{
		r:     rand.New(rand.NewPCG(seed, 1)),
		cuts:  rapid.IntRange(0, 12).Draw(t, "cuts"),
		after: rapid.SampledFrom([]int{300, 20_000, 3_000_000}).Draw(t, "after"),
		slow:  rapid.Bool().Draw(t, "slow"),
		tcp:   tcp,
		tls:   secure,
	}
	w := newWorld(nil, f.link)
	names := []string{"a", "b", "c"}
	nodes := make(map[string]*Node)
	for _, name := range names {
		nodes[name] = w.node(name, config)
		nodes[name].redialFirst = time.Millisecond
	}
	ledger := newLedger()
	// The group "keep" lives until the end, "close" is closed by some node, and c is forgotten by a.
	keep, closing := idOf("keep"), idOf("close")
	groups := make(map[string]map[ID]*Group)
	for _, name := range names {
		n := nodes[name]
		groups[name] = map[ID]*Group{}
		for _, id := range []ID{keep, closing} {
			if rapid.Bool().Draw(t, "loans") {
				groups[name][id] = n.OpenLoans(id, ledger.takeLoan)
			} else {
				groups[name][id] = n.OpenPlaces(id, ledger.take)
			}
		}
		for _, other := range names {
			n.SetPeer(idOf(other), other)
		}
	}
	sizes := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 100, 5000, 5001, 70_000, 70_001, LimitPiece, 2*LimitPiece + 5}), 0, 4)
	count := rapid.IntRange(1, 20).Draw(t, "messages")
	closeAt := rapid.IntRange(0, 30).Draw(t, "close at")
	forgetAt := rapid.IntRange(0, 30).Draw(t, "forget at")
	closer := rapid.SampledFrom(names).Draw(t, "closer")
	r := rand.New(rand.NewPCG(seed, 2))
	closedAt, forgot := false, false
	for k := range count {
		if k == closeAt {
			groups[closer][closing].Close()
			closedAt = true
			ledger.mu.Lock()
			for _, e := range ledger.entries {
				if e.group == closing && e.to == idOf(closer) {
					poison(e.parts)
				}
			}
			ledger.mu.Unlock()
		}
		if k == forgetAt {
			nodes["a"].Forget(idOf("c"))
			forgot = true
		}
		from, to := names[r.IntN(3)], names[r.IntN(3)]
		group := keep
		if r.IntN(3) == 0 {
			group = closing
		}
		ledger.send(groups[from][group], idOf(to), randomParts(r, sizes.Draw(t, "sizes")...))
	}
	if !forgot { // else c sends to a for ever
		ok := ledger.settle()
		for _, e := range ledger.entries {
			if ok && (e.group == keep || !closedAt) && (e.sentErr != nil || e.arrivedErr != nil || e.arrived != 1) {
				ledger.fail("a message arrived %d times: %v, %v", e.arrived, e.sentErr, e.arrivedErr)
			}
			if e.sentErr != nil && !errors.Is(e.sentErr, ErrClosed) || e.arrivedErr != nil && !errors.Is(e.arrivedErr, ErrClosed) &&
				!errors.Is(e.arrivedErr, ErrWithdrawn) {
				ledger.fail("ended with %v, %v", e.sentErr, e.arrivedErr)
			}
		}
	} else {
		groups["c"][keep].Close()
		groups["c"][closing].Close()
	}
	w.close()
	f.wg.Wait()
	ledger.settle()
	for len(ledger.kept) > 0 {
		ledger.returns(0)
	}
	for _, e := range ledger.entries {
		if e.sent != 1 || e.arrived != e.taken || e.taken > 1 {
			ledger.fail("sent %d, taken %d, arrived %d times", e.sent, e.taken, e.arrived)
		}
		poison(e.parts)
	}
	if len(ledger.wrong) > 0 {
		t.Fatal(ledger.wrong)
	}
}
