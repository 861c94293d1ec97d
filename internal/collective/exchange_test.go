package collective_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/tensorops"
)

// leaveAll ends all members at once, as they do at the end of a run.
func leaveAll(members []*collective.Group) {
	var wg sync.WaitGroup
	for _, g := range members {
		wg.Go(func() { g.Leave(nil) })
	}
	wg.Wait()
}

// exchange makes members over carriers in memory, with small pieces drawn at random where t can draw.
func exchange(t fataler, name string, n int) ([]*collective.Group, func()) {
	members, _, end := exchangeOver(t, name, n)
	return members, end
}

func exchangeOver(t fataler, name string, n int) ([]*collective.Group, *network, func()) {
	piece, gather, eager, copied, delay := 4096, 512, 8192, 256, 100*time.Microsecond
	if t, ok := t.(*rapid.T); ok {
		piece = 64 * rapid.IntRange(1, 100).Draw(t, "64 bytes of a piece")
		if rapid.Bool().Draw(t, "large pieces") {
			piece *= 64
		}
		gather = rapid.SampledFrom([]int{-1, 64, 4096, 1 << 20}).Draw(t, "gather")
		eager = rapid.SampledFrom([]int{0, 1000, 1 << 20}).Draw(t, "eager")
		copied = rapid.SampledFrom([]int{0, 256, 1 << 20}).Draw(t, "copied")
		if delay = rapid.SampledFrom([]time.Duration{0, 50 * time.Microsecond}).Draw(t, "delay"); delay > 0 {
			piece = max(piece, 2048) // a slow machine would take too long for thousands of pieces
		}
		copied = max(copied, gather)
	}
	net := newNetwork(n, delay)
	members := make([]*collective.Group, n)
	for rank := range members {
		members[rank] = collective.OverSizes(name, rank, n, net.ends[rank], piece, gather, eager, copied)
	}
	return members, net, func() {
		leaveAll(members)
		net.mu.Lock()
		defer net.mu.Unlock()
		if net.loans != 0 {
			t.Fatalf("%d of %d payloads were kept and not returned", net.loans, net.lent)
		}
	}
}

func TestExchangeReference(t *testing.T) { testAgainstReference(t, exchange) }
func TestExchangeBarrier(t *testing.T)   { testBarrier(t, exchange) }
func TestExchangeMismatch(t *testing.T)  { testMismatch(t, exchange) }
func TestExchangeLeave(t *testing.T)     { testLeave(t, exchange) }

// TestLeaveRightAway: who has what it needs may leave at once; the others still get theirs.
func TestLeaveRightAway(t *testing.T) {
	for range 20 {
		members, _ := exchange(t, "dp", 3)
		var wg sync.WaitGroup
		for _, g := range members {
			wg.Go(func() {
				for _, length := range []int{10, 10_000} {
					x := tensor(t, tensorops.Float32, length)
					if err := wait(t, g.AllReduce(x, tensorops.Sum)); err != nil {
						t.Error(err)
					}
				}
				g.Leave(nil)
			})
		}
		wg.Wait()
	}
}

// TestUnacknowledged: a collective whose messages are copied ends with its result, and needs no word from the others
// that they have theirs.
func TestUnacknowledged(t *testing.T) {
	net := newNetwork(2, 0)
	net.acks = make(chan struct{})
	var members []*collective.Group
	for rank := range 2 {
		members = append(members, collective.OverSizes("tp", rank, 2, net.ends[rank], 4096, 512, 8192, 1<<20))
	}
	each := func(do func(g *collective.Group) *collective.Handle) {
		var handles []*collective.Handle
		for _, g := range members {
			handles = append(handles, do(g))
		}
		for _, h := range handles {
			if err := wait(t, h); err != nil {
				t.Error(err)
			}
		}
	}
	x := func(n int) tensorops.Tensor { return tensor(t, tensorops.Float32, n, 1) }
	each(func(g *collective.Group) *collective.Handle { return g.AllReduce(x(10_000), tensorops.Sum) })
	each(func(g *collective.Group) *collective.Handle {
		return g.Do(tensorops.CollectiveArgs{What: tensorops.ReduceScatter, Dst: x(5000), Src: x(10_000), How: tensorops.Sum})
	})
	each(func(g *collective.Group) *collective.Handle {
		return g.Do(tensorops.CollectiveArgs{What: tensorops.AllGather, Dst: x(10_000), Src: x(5000)})
	})
	close(net.acks)
	leaveAll(members)
}

// TestLeft: a member that has its result waits until what it gives has left, since it would keep the others from it if
// it went on to compute.
func TestLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork(2, 0)
		net.acks, net.lefts = make(chan struct{}), make(chan struct{})
		var members []*collective.Group
		var handles []*collective.Handle
		for rank := range 2 {
			members = append(members, collective.OverSizes("tp", rank, 2, net.ends[rank], 4096, 512, 8192, 1<<20))
		}
		x := []tensorops.Tensor{tensor(t, tensorops.Float32, 1000), tensor(t, tensorops.Float32, 1000)}
		for rank, g := range members {
			handles = append(handles, g.AllReduce(x[rank], tensorops.Sum))
		}
		synctest.Wait()
		for rank, h := range handles {
			select {
			case <-h.Ended():
				t.Errorf("rank %d goes on, and nothing that it sent has left", rank)
			default:
			}
		}
		close(net.lefts)
		synctest.Wait()
		for rank, h := range handles {
			select {
			case <-h.Ended():
			default:
				t.Errorf("rank %d waits for an acknowledgement", rank)
			}
		}
		close(net.acks)
		leaveAll(members)
	})
}

// TestKilled: the collectives of the others end when a member's process is gone, in the middle of them too.
func TestKilled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "members")
		members, net, end := exchangeOver(t, "dp of stage 1", n)
		defer end()
		victim := rapid.IntRange(0, n-1).Draw(t, "victim")
		takesPart := rapid.Bool().Draw(t, "it has begun")
		a, d, src, dst := draw(t, n)
		handles := make([]*collective.Handle, n)
		for rank, g := range members {
			if rank == victim && !takesPart {
				continue
			}
			a.Src, a.Dst = tensor(t, d, src...), tensor(t, d, dst...)
			if a.What == tensorops.AllReduce || a.What == tensorops.Broadcast {
				a.Dst = a.Src
			}
			handles[rank] = g.Do(a)
		}
		time.Sleep(time.Duration(rapid.IntRange(0, 300).Draw(t, "µs")) * time.Microsecond)
		net.kill(victim)
		for rank, g := range members {
			if rank == victim {
				continue
			}
			err := wait(t, handles[rank])
			if err == nil { // it was complete before
				err = wait(t, g.Barrier())
			}
			if !errors.Is(err, collective.ErrLeft) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d", victim)) {
				t.Fatalf("rank %d is told %v", rank, err)
			}
		}
	})
}

// TestSeveralGroups: the groups of a grid in flight at the same time.
func TestSeveralGroups(t *testing.T) {
	rows := make2[*collective.Group](2, 2)
	columns := make2[*collective.Group](2, 2)
	for i := range 2 {
		row, endRow := exchange(t, fmt.Sprintf("tp %d", i), 2)
		defer endRow()
		column, endColumn := exchange(t, fmt.Sprintf("dp %d", i), 2)
		defer endColumn()
		for k := range 2 {
			rows[i][k], columns[k][i] = row[k], column[k]
		}
	}
	var wg sync.WaitGroup
	for i := range 2 {
		for k := range 2 {
			wg.Go(func() {
				for step := range 10 {
					x, y := tensor(t, tensorops.Float32, 5000), tensor(t, tensorops.Float32, 3000)
					for _, z := range []tensorops.Tensor{x, y} {
						e := tensorops.Elements[float32](z)
						for j := range e {
							e[j] = float32(2*i + k + step)
						}
					}
					h1, h2 := rows[i][k].AllReduce(x, tensorops.Sum), columns[i][k].AllReduce(y, tensorops.Sum)
					if err := errors.Join(wait(t, h1), wait(t, h2)); err != nil {
						t.Error(err)
						return
					}
					if got, want := tensorops.Elements[float32](x)[4999], float32(4*i+1+2*step); got != want {
						t.Errorf("row %d: %v, not %v", i, got, want)
					}
					if got, want := tensorops.Elements[float32](y)[2999], float32(2*k+2+2*step); got != want {
						t.Errorf("column %d: %v, not %v", k, got, want)
					}
				}
			})
		}
	}
	wg.Wait()
}

// TestAbandon: who abandons a group ends its own collectives alone; the others wait for somebody else's word.
func TestAbandon(t *testing.T) {
	members, _ := exchange(t, "dp", 2)
	cause := errors.New("the run ends")
	waits := members[0].Barrier()
	members[1].Abandon(cause)
	select {
	case <-waits.Ended():
		t.Errorf("it ended with %v", wait(t, waits))
	case <-time.After(50 * time.Millisecond):
	}
	if s, ok := members[0].Status(); !ok || len(s.Missing) != 1 || s.Missing[0] != 1 {
		t.Errorf("%v", s)
	}
	members[0].Abandon(cause)
	if err := wait(t, waits); !errors.Is(err, collective.ErrClosed) {
		t.Errorf("error %v", err)
	}
}
