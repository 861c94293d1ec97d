package groups_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/cluster/internal/groups"
	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/tensorops"
)

func TestMain(m *testing.M) {
	if os.Getenv(rankVariable) != "" {
		if err := playMember(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// process is a node of the lane with a port.
type process struct {
	id       lane.ID
	node     *lane.Node
	port     *groups.Port
	listener net.Listener
	served   sync.WaitGroup
}

var scope = lane.ID{'s'}

func processID(i int) lane.ID { return lane.ID{'p', byte(i + 1)} }

func newProcess(i int, shared bool, cfg groups.Config) (*process, error) {
	p := &process{id: processID(i)}
	p.node = lane.New(lane.Config{Self: p.id, NoSharedMemory: !shared, Dial: func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}})
	cfg.Name = func(id lane.ID) string { return fmt.Sprintf("worker-%d", id[1]-1) }
	p.port = groups.New(p.node, p.id, scope, cfg)
	var err error
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	p.served.Go(func() {
		for {
			conn, err := p.listener.Accept()
			if err != nil {
				return
			}
			p.served.Go(func() { p.node.Accept(conn, nil) })
		}
	})
	return p, nil
}

func (p *process) close() {
	p.port.Close()
	_ = p.listener.Close()
	p.node.Close()
	p.served.Wait()
}

// newProcesses makes processes that know each other.
func newProcesses(t *testing.T, n int, shared bool, cfg groups.Config) []*process {
	t.Helper()
	list := make([]*process, n)
	for i := range list {
		var err error
		if list[i], err = newProcess(i, shared, cfg); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(list[i].close)
	}
	for _, p := range list {
		for _, other := range list {
			if p != other {
				p.node.SetPeer(other.id, other.listener.Addr().String())
			}
		}
	}
	return list
}

var arena = tensorops.NewHostMemory(0).NewArena("test")

func tensor(d tensorops.DType, shape ...int) tensorops.Tensor {
	x, err := tensorops.NewTensor(arena, d, shape...)
	if err != nil {
		panic(err) // a few megabytes
	}
	return x
}

// work is one collective of each kind among n members, of a given length: what a member starts.
func work(rank, n, length int) (all []tensorops.CollectiveArgs) {
	random := rand.New(rand.NewPCG(uint64(rank), uint64(length)))
	f := func(shape ...int) tensorops.Tensor {
		x := tensor(tensorops.Float32, shape...)
		e := tensorops.Elements[float32](x)
		for i := range e {
			e[i] = float32(random.NormFloat64())
		}
		return x
	}
	half := func(shape ...int) tensorops.Tensor {
		x := tensor(tensorops.BFloat16, shape...)
		e := tensorops.Elements[uint16](x)
		for i := range e {
			e[i] = tensorops.ToBFloat16(float32(random.NormFloat64()))
		}
		return x
	}
	inPlace := func(a tensorops.CollectiveArgs) tensorops.CollectiveArgs { a.Dst = a.Src; return a }
	return []tensorops.CollectiveArgs{
		inPlace(tensorops.CollectiveArgs{What: tensorops.AllReduce, Src: f(length)}),
		inPlace(tensorops.CollectiveArgs{What: tensorops.AllReduce, How: tensorops.Mean, Src: half(3, length)}),
		inPlace(tensorops.CollectiveArgs{What: tensorops.Broadcast, Root: n - 1, Src: f(length)}),
		{What: tensorops.ReduceScatter, How: tensorops.Max, Src: f(2, 3*n, length), Dst: f(2, 3, length), Dim: 1},
		{What: tensorops.ReduceScatter, Src: f(length, n), Dst: f(length, 1), Dim: 1},
		{What: tensorops.AllGather, Src: f(3, length), Dst: f(3, n*length), Dim: 1},
		{What: tensorops.AllGather, Src: half(length), Dst: half(n * length)},
		{What: tensorops.AllToAll, Src: f(n, length), Dst: f(n, length)},
		{What: tensorops.RingForward, Src: f(length), Dst: f(length)},
		{What: tensorops.Barrier},
	}
}

// expected returns the collectives' results in one process.
func expected(t *testing.T, n, length int) (results [][][]byte) {
	t.Helper()
	var all [][]tensorops.CollectiveArgs
	var handles []*collective.Handle
	for rank, g := range collective.Local("expected", n) {
		all = append(all, work(rank, n, length))
		for _, a := range all[rank] {
			handles = append(handles, g.Do(a))
		}
	}
	for _, h := range handles {
		if err := h.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	for _, list := range all {
		var bytes [][]byte
		for _, a := range list {
			if a.What != tensorops.Barrier {
				bytes = append(bytes, tensorops.Bytes(a.Dst))
			}
		}
		results = append(results, bytes)
	}
	return results
}

func wait(t *testing.T, h *collective.Handle) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := h.Wait(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Fatal("a collective did not end")
	}
	return err
}

// TestCollectives: concurrent collectives over the lane give the bits of one process, also if a process has two members.
func TestCollectives(t *testing.T) {
	for _, c := range []struct {
		name      string
		processes []int // of each rank
		shared    bool
	}{
		{"two", []int{0, 1}, false},
		{"three over shared memory", []int{0, 1, 2}, true},
		{"four in two", []int{0, 1, 0, 1}, true},
		{"in one", []int{0, 0}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := len(c.processes)
			processes := newProcesses(t, 3, c.shared, groups.Config{Silence: -1})
			ids := make([]lane.ID, n)
			for rank, i := range c.processes {
				ids[rank] = processID(i)
			}
			for _, length := range []int{7, 1000, 130_000} {
				want := expected(t, n, length)
				var wg sync.WaitGroup
				for rank, i := range c.processes {
					wg.Go(func() {
						g, err := processes[i].port.Open(fmt.Sprintf("dp %d", length), ids, rank)
						if err != nil {
							t.Error(err)
							return
						}
						defer g.Leave(nil)
						all := work(rank, n, length)
						var handles []*collective.Handle
						for _, a := range all {
							handles = append(handles, g.Do(a))
						}
						for k, h := range handles {
							if err := wait(t, h); err != nil {
								t.Error(err)
								return
							}
							if a := all[k]; a.What != tensorops.Barrier && !bytes.Equal(tensorops.Bytes(a.Dst), want[rank][k]) {
								t.Errorf("length %d, rank %d: %v has other bits than in one process", length, rank, a.What)
							}
						}
					})
				}
				wg.Wait()
			}
		})
	}
}

// TestLateMember: messages to a member that is not open yet are not lost.
func TestLateMember(t *testing.T) {
	processes := newProcesses(t, 2, true, groups.Config{})
	ids := []lane.ID{processID(0), processID(1)}
	first, err := processes[0].port.Open("late", ids, 0)
	if err != nil {
		t.Fatal(err)
	}
	x, y := tensor(tensorops.Int32, 4), tensor(tensorops.Int32, 4)
	tensorops.Elements[int32](x)[0], tensorops.Elements[int32](y)[0] = 40, 2
	h := first.AllReduce(x, tensorops.Sum)
	time.Sleep(30 * time.Millisecond)
	if list := processes[0].port.Waiting(); len(list) != 1 ||
		list[0].String() != "group late, collective 1: all_reduce sum int32[4] waits for rank 1" {
		t.Errorf("waiting: %v", list)
	}
	second, err := processes[1].port.Open("late", ids, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(wait(t, second.AllReduce(y, tensorops.Sum)), wait(t, h)); err != nil {
		t.Fatal(err)
	}
	if got := tensorops.Elements[int32](x)[0]; got != 42 {
		t.Errorf("sum %d", got)
	}
	first.Leave(nil)
	if err := wait(t, second.Barrier()); !errors.Is(err, collective.ErrLeft) || !strings.Contains(err.Error(), "rank 0") {
		t.Errorf("after the other has left: %v", err)
	}
	second.Leave(nil)
}

// TestOtherMembers: processes with different lists of a group's members get an error.
func TestOtherMembers(t *testing.T) {
	processes := newProcesses(t, 3, true, groups.Config{})
	a, err := processes[0].port.Open("dp", []lane.ID{processID(0), processID(1)}, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := processes[1].port.Open("dp", []lane.ID{processID(0), processID(1), processID(2)}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []*collective.Handle{a.Barrier(), b.Barrier()} {
		if err := wait(t, h); err == nil || !strings.Contains(err.Error(), "group dp") {
			t.Errorf("error %v", err)
		}
	}
	a.Leave(nil)
	b.Leave(nil)
}

// TestGone: when one process reports that another is gone, the group ends at once.
func TestGone(t *testing.T) {
	processes := newProcesses(t, 2, true, groups.Config{Silence: -1})
	g, err := processes[0].port.Open("dp", []lane.ID{processID(0), processID(1)}, 0)
	if err != nil {
		t.Fatal(err)
	}
	h := g.Barrier()
	processes[0].port.Gone(processID(1), errors.New("the coordinator says so"))
	if err := wait(t, h); !errors.Is(err, collective.ErrLeft) || !strings.Contains(err.Error(), "rank 1") ||
		!strings.Contains(err.Error(), "the coordinator says so") {
		t.Errorf("error %v", err)
	}
	g.Leave(nil)
}

// TestOpenErrors: an invalid group is refused.
func TestOpenErrors(t *testing.T) {
	p := newProcesses(t, 1, false, groups.Config{})[0]
	ids := []lane.ID{processID(0), processID(1)}
	for _, c := range []struct {
		name string
		rank int
		is   error
	}{{"", 0, groups.ErrName}, {strings.Repeat("x", 300), 0, groups.ErrName}, {"dp", 1, groups.ErrRank}, {"dp", 2, groups.ErrRank},
		{"dp", -1, groups.ErrRank}} {
		if _, err := p.port.Open(c.name, ids, c.rank); !errors.Is(err, c.is) {
			t.Errorf("%q, rank %d: %v", c.name, c.rank, err)
		}
	}
	g, err := p.port.Open("dp", ids, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.port.Open("dp", ids, 0); !errors.Is(err, groups.ErrTwice) {
		t.Errorf("twice: %v", err)
	}
	g.Leave(nil)
}
