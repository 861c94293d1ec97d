package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/p2p"
	"github.com/troupe-ml/troupe/tensorops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type rig struct {
	*testing.T
	arena tensorops.Arena
	ctx   context.Context
}

func newRig(t *testing.T) *rig {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	a := tensorops.NewHostMemory(0).NewArena("test")
	t.Cleanup(func() { cancel(); a.Close() })
	return &rig{t, a, ctx}
}

func (r *rig) tensor(values ...float32) tensorops.Tensor {
	t, err := tensorops.NewTensor(r.arena, tensorops.Float32, len(values))
	if err != nil {
		r.Fatal(err)
	}
	copy(tensorops.Elements[float32](t), values)
	return t
}

func (r *rig) wait(h *p2p.Handle) p2p.Received {
	r.Helper()
	got, err := h.Wait(r.ctx)
	if err != nil {
		r.Fatal(err)
	}
	return got
}

func values(ts []tensorops.Tensor) [][]float32 {
	var all [][]float32
	for _, t := range ts {
		all = append(all, slices.Clone(tensorops.Elements[float32](t)))
	}
	return all
}

func same(a [][]float32, b ...[]float32) bool {
	return slices.EqualFunc(a, b, slices.Equal[[]float32])
}

func check(got p2p.Received, t *testing.T, name string, forward, backward []float32) {
	t.Helper()
	of := func(v []float32) (all [][]float32) {
		if v != nil {
			all = append(all, v)
		}
		return all
	}
	if !same(values(got.Forward), of(forward)...) || !same(values(got.Backward), of(backward)...) {
		t.Errorf("%s: %v and %v came, want %v and %v", name, values(got.Forward), values(got.Backward), forward, backward)
	}
}

// device is a tensor [2, 2] in memory that the host can't read.
func (r *rig) device() tensorops.Tensor {
	t, err := tensorops.NewTensor(tensorops.NewDryStream().Arena(), tensorops.Float32, 2, 2)
	if err != nil {
		r.Fatal(err)
	}
	return t
}

// networks are ways to make the ports of n stages.
func networks(r *rig) map[string]func(n int, cfg p2p.Config) []*p2p.Port {
	return map[string]func(n int, cfg p2p.Config) []*p2p.Port{
		"local": p2p.Local,
		"over": func(n int, cfg p2p.Config) []*p2p.Port {
			wires := newWires(n)
			r.Cleanup(wires.close)
			ports := make([]*p2p.Port, n)
			for rank := range ports {
				ports[rank] = p2p.Over(rank, n, cfg, wires.ends[rank])
			}
			return ports
		},
	}
}

// TestEnds: calls that don't apply to the first or the last stage return at once with nothing, in a pipeline and in a
// U-shape.
func TestEnds(t *testing.T) {
	r := newRig(t)
	for name, c := range map[string]struct {
		cfg   p2p.Config
		call  p2p.Call
		rank  int
		do    func(p *p2p.Port, c p2p.Call) *p2p.Handle
		none  bool
		other int // whom it is with
	}{
		"first receives no activation":    {rank: 0, do: (*p2p.Port).RecvForward, none: true},
		"last receives no gradient":       {rank: 2, do: (*p2p.Port).RecvBackward, none: true},
		"U: first receives no activation": {cfg: p2p.Config{UShape: true}, rank: 0, do: (*p2p.Port).RecvForward, none: true},
		"U: the end receives of the last": {cfg: p2p.Config{UShape: true}, call: p2p.Call{End: true}, rank: 0, do: (*p2p.Port).RecvForward,
			other: 2},
		"U: the end receives no gradient": {cfg: p2p.Config{UShape: true}, call: p2p.Call{End: true}, rank: 0,
			do: (*p2p.Port).RecvBackward, none: true},
		"U: first receives the second's":         {cfg: p2p.Config{UShape: true}, rank: 0, do: (*p2p.Port).RecvBackward, other: 1},
		"U: last receives the gradient of first": {cfg: p2p.Config{UShape: true}, rank: 2, do: (*p2p.Port).RecvBackward, other: 0},
	} {
		ports := p2p.Local(3, c.cfg)
		h := c.do(ports[c.rank], c.call)
		select {
		case <-h.Ended():
			if got := r.wait(h); !c.none || got.Forward != nil || got.Backward != nil {
				t.Errorf("%s: it ended with %v", name, got)
			}
		default:
			if c.none {
				t.Errorf("%s: it waits", name)
				break
			}
			send := ports[c.other].SendForward
			if c.rank < c.other && !c.call.End || c.cfg.UShape && c.rank == 2 {
				send = ports[c.other].SendBackward
			}
			r.wait(send([]tensorops.Tensor{r.tensor(7)}, p2p.Call{End: c.rank == 2}))
			got := r.wait(h)
			if ts := append(got.Forward, got.Backward...); !same(values(ts), []float32{7}) {
				t.Errorf("%s: %v", name, values(ts))
			}
		}
		for _, p := range ports {
			p.Close(nil)
		}
	}
	// What is sent to nobody is freed.
	ports := p2p.Local(2, p2p.Config{})
	x := r.tensor(1)
	r.wait(ports[1].SendForward([]tensorops.Tensor{x}, p2p.Call{}))
	r.wait(ports[0].SendBackward([]tensorops.Tensor{r.tensor(2)}, p2p.Call{}))
	for _, p := range ports {
		p.Close(nil)
	}
}

// TestCombined makes combined calls between three stages in an order in which separate sends and receives would block each
// other.
func TestCombined(t *testing.T) {
	r := newRig(t)
	one := func(v float32) []tensorops.Tensor { return []tensorops.Tensor{r.tensor(v)} }
	for name, network := range networks(r) {
		p := network(3, p2p.Config{})
		a, b, c := p[0], p[1], p[2]
		// Everybody sends before anybody receives.
		h0 := a.SendForwardRecvBackward([]tensorops.Tensor{r.tensor(1, 2), r.tensor(3)}, p2p.Call{})
		h2 := c.SendBackwardRecvForward(one(20), p2p.Call{})
		h1 := b.SendForwardBackwardRecvForwardBackward(one(12), one(10), p2p.Call{})
		if got := r.wait(h1); !same(values(got.Forward), []float32{1, 2}, []float32{3}) || !same(values(got.Backward), []float32{20}) {
			t.Errorf("%s: the middle got %v and %v", name, values(got.Forward), values(got.Backward))
		}
		if got := r.wait(h0); !same(values(got.Backward), []float32{10}) {
			t.Errorf("%s: the first got %v", name, values(got.Backward))
		}
		if got := r.wait(h2); !same(values(got.Forward), []float32{12}) {
			t.Errorf("%s: the last got %v", name, values(got.Forward))
		}
		h1 = b.SendForwardRecvForward(one(5), p2p.Call{})
		h2 = c.RecvForward(p2p.Call{Want: []p2p.Spec{{DType: tensorops.Float32, Shape: []int{1}}}})
		r.wait(a.SendForward(one(4), p2p.Call{}))
		if x, y := r.wait(h1), r.wait(h2); !same(values(x.Forward), []float32{4}) || !same(values(y.Forward), []float32{5}) {
			t.Errorf("%s: %v and %v", name, values(x.Forward), values(y.Forward))
		}
		h1 = b.SendBackwardRecvBackward(one(6), p2p.Call{})
		h0 = a.RecvBackward(p2p.Call{})
		r.wait(c.SendBackward(one(7), p2p.Call{}))
		if x, y := r.wait(h1), r.wait(h0); !same(values(x.Backward), []float32{7}) || !same(values(y.Backward), []float32{6}) {
			t.Errorf("%s: %v and %v", name, values(x.Backward), values(y.Backward))
		}
		// To a rank of one's own, and round the ring.
		to, from := 2, 0
		r.wait(a.SendForward(one(8), p2p.Call{Next: &to}))
		if got := r.wait(c.RecvForward(p2p.Call{Prev: &from})); !same(values(got.Forward), []float32{8}) {
			t.Errorf("%s: past the middle came %v", name, values(got.Forward))
		}
		var rings []*p2p.Handle
		for i, port := range p {
			rings = append(rings, port.RingForward(one(float32(i)), p2p.Call{}))
		}
		for i, h := range rings {
			if got := r.wait(h); !same(values(got.Forward), []float32{float32((i + 2) % 3)}) {
				t.Errorf("%s: round the ring stage %d got %v", name, i, values(got.Forward))
			}
		}
		if n := b.Timers(); n["forward-send"].Calls != 2 || n["forward-recv"].Calls != 2 || n["backward-send"].Calls != 2 ||
			n["backward-recv"].Calls != 2 {
			t.Errorf("%s: the timers are %v", name, n)
		}
		for _, port := range p {
			port.Close(nil)
		}
	}
}

// TestShapes: each message can have other shapes; a mismatch is an error that names both.
func TestShapes(t *testing.T) {
	r := newRig(t)
	for name, network := range networks(r) {
		p := network(2, p2p.Config{})
		for n := 1; n < 40; n++ {
			var ts []tensorops.Tensor
			for k := range n%3 + 1 {
				ts = append(ts, r.tensor(make([]float32, n+k)...))
			}
			want := p2p.Like(ts...)
			r.wait(p[0].SendForward(ts, p2p.Call{}))
			r.wait(p[1].RecvForward(p2p.Call{Want: want}))
		}
		again, err := p[0].SendTensorMeta(r.ctx, true, []p2p.Spec{{DType: tensorops.BFloat16, Shape: []int{2, 3, 4}}, {DType: tensorops.Int32}},
			p2p.Call{})
		if err != nil || again {
			t.Errorf("%s: meta: %v, %v", name, again, err)
		}
		for what, bad := range map[string][]p2p.Spec{
			"a dimension below 0":      {{DType: tensorops.Float32, Shape: []int{2, -1}}},
			"too many dimensions":      {{DType: tensorops.Float32, Shape: make([]int, tensorops.MaxRank+1)}},
			"a type that there is not": {{DType: 200}},
			"too many tensors":         make([]p2p.Spec, p2p.LimitTensors+1),
		} {
			if again, err := p[0].SendTensorMeta(r.ctx, true, bad, p2p.Call{}); !errors.Is(err, tensorops.ErrShape) || !again {
				t.Errorf("%s: meta of %s: %v, %v", name, what, again, err)
			}
		}
		specs, err := p[1].RecvTensorMeta(r.ctx, nil, p2p.Call{})
		if err != nil || fmt.Sprint(specs) != "[bfloat16[2 3 4] int32[]]" {
			t.Errorf("%s: meta: %v, %v", name, specs, err)
		}
		r.wait(p[0].SendForward([]tensorops.Tensor{r.tensor(1, 2)}, p2p.Call{}))
		_, err = p[1].RecvForward(p2p.Call{Want: []p2p.Spec{{DType: tensorops.Float32, Shape: []int{3}}}}).Wait(r.ctx)
		if !errors.Is(err, p2p.ErrUnexpected) ||
			err.Error() != "stage 1, forward from stage 0: unexpected tensors: got [float32[2]], want [float32[3]]" {
			t.Errorf("%s: error %v", name, err)
		}
		if _, err := p[0].SendForward(nil, p2p.Call{}).Wait(r.ctx); !errors.Is(err, tensorops.ErrShape) {
			t.Errorf("%s: nothing to send: %v", name, err)
		}
		far := 9
		if _, err := p[0].SendForward([]tensorops.Tensor{r.tensor(1)}, p2p.Call{Next: &far}).Wait(r.ctx); !errors.Is(err, p2p.ErrRank) {
			t.Errorf("%s: far away: %v", name, err)
		}
		h := p[1].RecvForward(p2p.Call{})
		for _, port := range p {
			port.Close(errors.New("the end"))
		}
		if _, err := h.Wait(r.ctx); !errors.Is(err, p2p.ErrClosed) {
			t.Errorf("%s: closed: %v", name, err)
		}
		if _, err := p[0].SendForward([]tensorops.Tensor{r.tensor(1)}, p2p.Call{}).Wait(r.ctx); !errors.Is(err, p2p.ErrClosed) {
			t.Errorf("%s: closed: %v", name, err)
		}
	}
}

// TestNoEdge: a stage without a previous or next stage has none, whatever Call.Prev and Call.Next say. Single and combined calls
// do the rest at once.
func TestNoEdge(t *testing.T) {
	r := newRig(t)
	u := p2p.Config{UShape: true}
	type call = func(p *p2p.Port, x []tensorops.Tensor, c p2p.Call) *p2p.Handle
	recvForward := func(p *p2p.Port, _ []tensorops.Tensor, c p2p.Call) *p2p.Handle { return p.RecvForward(c) }
	recvBackward := func(p *p2p.Port, _ []tensorops.Tensor, c p2p.Call) *p2p.Handle { return p.RecvBackward(c) }
	all := func(p *p2p.Port, x []tensorops.Tensor, c p2p.Call) *p2p.Handle {
		return p.SendForwardBackwardRecvForwardBackward(x, []tensorops.Tensor{r.tensor(8)}, c)
	}
	for name, c := range map[string]struct {
		cfg   p2p.Config
		rank  int
		end   bool
		do    call
		waits bool // for the transfer that the stage has
	}{
		"first, recv_forward":                                {rank: 0, do: recvForward},
		"first, send_backward":                               {rank: 0, do: (*p2p.Port).SendBackward},
		"first, send_backward_recv_forward":                  {rank: 0, do: (*p2p.Port).SendBackwardRecvForward},
		"first, send_forward_recv_forward":                   {rank: 0, do: (*p2p.Port).SendForwardRecvForward},
		"first, send_backward_recv_backward":                 {rank: 0, do: (*p2p.Port).SendBackwardRecvBackward, waits: true},
		"first, send_forward_backward_recv_forward_backward": {rank: 0, do: all, waits: true},
		"last, recv_backward":                                {rank: 2, do: recvBackward},
		"last, send_forward":                                 {rank: 2, do: (*p2p.Port).SendForward},
		"last, send_forward_recv_backward":                   {rank: 2, do: (*p2p.Port).SendForwardRecvBackward},
		"last, send_backward_recv_backward":                  {rank: 2, do: (*p2p.Port).SendBackwardRecvBackward},
		"last, send_forward_recv_forward":                    {rank: 2, do: (*p2p.Port).SendForwardRecvForward, waits: true},
		"last, send_forward_backward_recv_forward_backward":  {rank: 2, do: all, waits: true},
		"U, first, recv_forward":                             {cfg: u, rank: 0, do: recvForward},
		"U, first, send_backward":                            {cfg: u, rank: 0, do: (*p2p.Port).SendBackward},
		"U, end, recv_backward":                              {cfg: u, rank: 0, end: true, do: recvBackward},
		"U, end, send_forward":                               {cfg: u, rank: 0, end: true, do: (*p2p.Port).SendForward},
		"U, end, send_forward_recv_backward":                 {cfg: u, rank: 0, end: true, do: (*p2p.Port).SendForwardRecvBackward},
		"U, end, send_forward_recv_forward": {cfg: u, rank: 0, end: true, do: (*p2p.Port).SendForwardRecvForward,
			waits: true},
		"U, last, send_forward":                                 {cfg: u, rank: 2, do: (*p2p.Port).SendForward},
		"U, last, recv_backward":                                {cfg: u, rank: 2, do: recvBackward, waits: true},
		"U, first, send_forward_backward_recv_forward_backward": {cfg: u, rank: 0, do: all, waits: true},
	} {
		ports := p2p.Local(3, c.cfg)
		middle := 1
		h := c.do(ports[c.rank], []tensorops.Tensor{r.tensor(7)}, p2p.Call{Prev: &middle, Next: &middle, End: c.end})
		select {
		case <-h.Ended():
			if got := r.wait(h); c.waits || got.Forward != nil || got.Backward != nil {
				t.Errorf("%s: it ended with %v and %v", name, values(got.Forward), values(got.Backward))
			}
		default:
			if !c.waits {
				t.Errorf("%s: it waits", name)
			}
		}
		for _, p := range ports {
			p.Close(nil)
		}
	}
}

// TestRefused: a combined call with invalid tensors or stages is refused before any of its transfers begins. Nothing that was
// sent to the stage is lost, and nothing is sent.
func TestRefused(t *testing.T) {
	r := newRig(t)
	far := 9
	one := func(v float32) []tensorops.Tensor { return []tensorops.Tensor{r.tensor(v)} }
	for network, ports := range networks(r) {
		for why, c := range map[string]struct {
			bad  func() []tensorops.Tensor
			call p2p.Call
			want error
		}{
			"no tensors": {func() []tensorops.Tensor { return nil }, p2p.Call{}, tensorops.ErrShape},
			"none in the middle": {func() []tensorops.Tensor { return []tensorops.Tensor{r.tensor(1), {}, r.tensor(2)} }, p2p.Call{},
				tensorops.ErrShape},
			"too many tensors": {func() []tensorops.Tensor { return make([]tensorops.Tensor, p2p.LimitTensors+1) }, p2p.Call{},
				tensorops.ErrShape},
			"device's memory": {func() []tensorops.Tensor { return []tensorops.Tensor{r.device().Columns(0, 1)} }, p2p.Call{},
				tensorops.ErrShape},
			"no such stage": {func() []tensorops.Tensor { return one(1) }, p2p.Call{Next: &far}, p2p.ErrRank},
		} {
			for call, do := range map[string]func(p *p2p.Port) *p2p.Handle{
				"send_forward_recv_forward":  func(p *p2p.Port) *p2p.Handle { return p.SendForwardRecvForward(c.bad(), c.call) },
				"send_forward_recv_backward": func(p *p2p.Port) *p2p.Handle { return p.SendForwardRecvBackward(c.bad(), c.call) },
				"send_forward_backward_recv_forward_backward": func(p *p2p.Port) *p2p.Handle {
					return p.SendForwardBackwardRecvForwardBackward(c.bad(), one(3), c.call)
				},
			} {
				name := network + ", " + why + ", " + call
				p := ports(3, p2p.Config{})
				h := do(p[1])
				select {
				case <-h.Ended():
					if got, err := h.Wait(r.ctx); !errors.Is(err, c.want) || got.Forward != nil || got.Backward != nil {
						t.Errorf("%s: %v, error %v", name, got, err)
					}
				default:
					t.Errorf("%s: it waits", name)
				}
				r.wait(p[0].SendForward(one(1), p2p.Call{}))
				r.wait(p[2].SendBackward(one(2), p2p.Call{}))
				check(r.wait(p[1].SendForwardRecvBackward(one(5), p2p.Call{})), t, name, nil, []float32{2})
				check(r.wait(p[1].SendBackwardRecvForward(one(6), p2p.Call{})), t, name, []float32{1}, nil)
				check(r.wait(p[2].RecvForward(p2p.Call{})), t, name, []float32{5}, nil)
				check(r.wait(p[0].RecvBackward(p2p.Call{})), t, name, nil, []float32{6})
				for _, port := range p {
					port.Close(nil)
				}
			}
		}
	}
}

// TestGapless: a view of some columns arrives unchanged, single and to several groups, also rounded in transit and in parts.
func TestGapless(t *testing.T) {
	r := newRig(t)
	view := func() []tensorops.Tensor {
		m, err := tensorops.NewTensor(r.arena, tensorops.Float32, 3, 4)
		if err != nil {
			t.Fatal(err)
		}
		for i := range tensorops.Elements[float32](m) {
			tensorops.Elements[float32](m)[i] = float32(i)
		}
		return []tensorops.Tensor{m.Columns(0, 2)}
	}
	want := []float32{0, 1, 4, 5, 8, 9}
	for network, ports := range networks(r) {
		for how, cfg := range map[string]p2p.Config{"as it is": {}, "bfloat16": {WireDType: tensorops.BFloat16}} {
			name := network + ", " + how
			a, b := ports(2, cfg), ports(2, cfg)
			r.wait(a[0].SendForward(view(), p2p.Call{}))
			check(r.wait(a[1].RecvForward(p2p.Call{Want: []p2p.Spec{{DType: tensorops.Float32, Shape: []int{3, 2}}}})), t, name, want, nil)
			if err := (p2p.Several{a[0], b[0]}).SendForward(r.ctx, view(), p2p.Call{}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			got, err := p2p.Several{a[1], b[1]}.RecvForward(r.ctx, p2p.Call{})
			if err != nil || !same(values(got), want) {
				t.Errorf("%s: several: %v, %v", name, values(got), err)
			}
			if err := (p2p.Several{a[1], b[1]}).SendBackward(r.ctx, view(), p2p.Call{}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			check(r.wait(b[0].RecvBackward(p2p.Call{})), t, name, nil, want)
			for _, port := range append(a, b...) {
				port.Close(nil)
			}
		}
	}
	group := collective.Local("tp", 2)
	var lanes [2][]*p2p.Port
	var receives [2]*p2p.Handle
	for rank := range lanes {
		lanes[rank] = p2p.Local(2, p2p.Config{Scatter: group[rank]})
		r.wait(lanes[rank][0].SendForward(view(), p2p.Call{}))
		receives[rank] = lanes[rank][1].RecvForward(p2p.Call{})
	}
	for rank, h := range receives {
		check(r.wait(h), t, fmt.Sprintf("parts, rank %d", rank), want, nil)
	}
	for _, ports := range lanes {
		for _, port := range ports {
			port.Close(nil)
		}
	}
}

// TestUnread: if too many messages are unread, both sender and receiver get an error, and no later message takes the place of a
// refused one.
func TestUnread(t *testing.T) {
	r := newRig(t)
	p := p2p.Local(2, p2p.Config{})
	for range p2p.LimitUnread {
		r.wait(p[0].SendForward([]tensorops.Tensor{r.tensor(1)}, p2p.Call{}))
	}
	if _, err := p[0].SendForward([]tensorops.Tensor{r.tensor(1)}, p2p.Call{}).Wait(r.ctx); !errors.Is(err, p2p.ErrFull) {
		t.Errorf("error %v", err)
	}
	// What waits is received, and then nobody waits for what was refused.
	for range p2p.LimitUnread {
		r.wait(p[1].RecvForward(p2p.Call{}))
	}
	if _, err := p[1].RecvForward(p2p.Call{}).Wait(r.ctx); !errors.Is(err, p2p.ErrFull) {
		t.Errorf("the message that was refused: error %v", err)
	}
	if _, err := p[0].SendForward([]tensorops.Tensor{r.tensor(1)}, p2p.Call{}).Wait(r.ctx); !errors.Is(err, p2p.ErrFull) {
		t.Errorf("a later message: error %v", err)
	}
	for _, port := range p {
		port.Close(nil)
	}
}

// TestSendFailsLate: a combined call returns what it received, even if the other stage refuses what it sent.
func TestSendFailsLate(t *testing.T) {
	r := newRig(t)
	p := p2p.Local(3, p2p.Config{})
	p[2].Close(errors.New("it is gone"))
	h := p[1].SendForwardRecvForward([]tensorops.Tensor{r.tensor(5)}, p2p.Call{})
	r.wait(p[0].SendForward([]tensorops.Tensor{r.tensor(1)}, p2p.Call{}))
	got, err := h.Wait(r.ctx)
	if !errors.Is(err, p2p.ErrClosed) {
		t.Errorf("error %v", err)
	}
	check(got, t, "the call whose send failed", []float32{1}, nil)
	for _, port := range p {
		port.Close(nil)
	}
}

// TestWire: tensors travel as bfloat16, and each rank of a tensor group sends its part.
func TestWire(t *testing.T) {
	r := newRig(t)
	for name, network := range networks(r) {
		const tensor = 2
		group := collective.Local("second", tensor)
		var wg sync.WaitGroup
		lanes := make([][]*p2p.Port, tensor)
		for rank := range tensor {
			lanes[rank] = network(2, p2p.Config{WireDType: tensorops.BFloat16, Scatter: group[rank]})
		}
		got := make([]p2p.Received, tensor)
		for rank := range tensor {
			// 1/3 is rounded on its way; the second tensor does not divide, and goes whole.
			h := lanes[rank][0].SendForward([]tensorops.Tensor{r.tensor(1, 1.0/3, 3, 4), r.tensor(5, 6, 7)}, p2p.Call{})
			wg.Go(func() {
				r.wait(h)
				var err error
				if got[rank], err = lanes[rank][1].RecvForward(p2p.Call{}).Wait(r.ctx); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		wg.Wait()
		third := tensorops.FromBFloat16(tensorops.ToBFloat16(1.0 / 3))
		for rank := range tensor {
			if !same(values(got[rank].Forward), []float32{1, third, 3, 4}, []float32{5, 6, 7}) {
				t.Errorf("%s: rank %d got %v", name, rank, values(got[rank].Forward))
			}
			for _, port := range lanes[rank] {
				port.Close(nil)
			}
		}
	}
}

// TestSeveral: tensors from several pipeline groups are averaged.
func TestSeveral(t *testing.T) {
	r := newRig(t)
	a, b := p2p.Local(2, p2p.Config{}), p2p.Local(2, p2p.Config{})
	r.wait(a[0].SendForward([]tensorops.Tensor{r.tensor(1, 5)}, p2p.Call{}))
	r.wait(b[0].SendForward([]tensorops.Tensor{r.tensor(2, 7)}, p2p.Call{}))
	both := p2p.Several{a[1], b[1]}
	got, err := both.RecvForward(r.ctx, p2p.Call{})
	if err != nil || !same(values(got), []float32{1.5, 6}) {
		t.Errorf("%v, %v", values(got), err)
	}
	if err := both.SendBackward(r.ctx, []tensorops.Tensor{r.tensor(3)}, p2p.Call{}); err != nil {
		t.Error(err)
	}
	for _, p := range []*p2p.Port{a[0], b[0]} {
		if got := r.wait(p.RecvBackward(p2p.Call{})); !same(values(got.Backward), []float32{3}) {
			t.Errorf("%v", values(got.Backward))
		}
	}
	r.wait(a[0].SendForward([]tensorops.Tensor{r.tensor(1, 5)}, p2p.Call{}))
	r.wait(b[0].SendForward([]tensorops.Tensor{r.tensor(2)}, p2p.Call{}))
	if _, err := both.RecvForward(r.ctx, p2p.Call{}); !errors.Is(err, p2p.ErrUnexpected) {
		t.Errorf("error %v", err)
	}
	for _, p := range append(a, b...) {
		p.Close(nil)
	}
}

// TestSeveralRefuse: a call that one group can't do is refused before any group begins. An empty list of groups sends and
// receives nothing.
func TestSeveralRefuse(t *testing.T) {
	r := newRig(t)
	one := func(v float32) []tensorops.Tensor { return []tensorops.Tensor{r.tensor(v)} }
	x := one(1)
	if err := (p2p.Several{}).SendForward(r.ctx, x, p2p.Call{}); err != nil || !x[0].Released() {
		t.Errorf("no groups, send_forward: %v, released %v", err, x[0].Released())
	}
	if err := (p2p.Several{}).SendBackward(r.ctx, one(1), p2p.Call{}); err != nil {
		t.Errorf("no groups, send_backward: %v", err)
	}
	if got, err := (p2p.Several{}).RecvForward(r.ctx, p2p.Call{}); got != nil || err != nil {
		t.Errorf("no groups, recv_forward: %v, %v", got, err)
	}
	if got, err := (p2p.Several{}).RecvBackward(r.ctx, p2p.Call{}); got != nil || err != nil {
		t.Errorf("no groups, recv_backward: %v, %v", got, err)
	}
	a, b := p2p.Local(3, p2p.Config{}), p2p.Local(2, p2p.Config{})
	to := 2 // b has no such stage
	for name, c := range map[string]struct {
		s    p2p.Several
		ts   []tensorops.Tensor
		call p2p.Call
		want error
	}{
		"a stage of one group": {p2p.Several{a[0], b[0]}, one(1), p2p.Call{Next: &to}, p2p.ErrRank},
		"no tensors":           {p2p.Several{a[0], b[0]}, nil, p2p.Call{}, tensorops.ErrShape},
		"none in the middle":   {p2p.Several{a[0], b[0]}, []tensorops.Tensor{r.tensor(1), {}, r.tensor(2)}, p2p.Call{}, tensorops.ErrShape},
		"device's memory":      {p2p.Several{a[0], b[0]}, []tensorops.Tensor{r.tensor(1), r.device()}, p2p.Call{}, tensorops.ErrShape},
		"no port":              {p2p.Several{a[0], nil}, one(1), p2p.Call{}, p2p.ErrRank},
	} {
		if err := c.s.SendForward(r.ctx, c.ts, c.call); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := (p2p.Several{a[1], b[1], nil}).RecvForward(r.ctx, p2p.Call{}); !errors.Is(err, p2p.ErrRank) {
		t.Errorf("no port: error %v", err)
	}
	// No group was sent anything, and none lacks anything.
	for v, p := range map[float32][]*p2p.Port{3: a, 5: b} {
		r.wait(p[0].SendForward(one(v), p2p.Call{}))
	}
	got, err := p2p.Several{a[1], b[1]}.RecvForward(r.ctx, p2p.Call{})
	if err != nil || !same(values(got), []float32{4}) {
		t.Errorf("%v, %v", values(got), err)
	}
	// What comes after a wait that ended early is released.
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	if _, err := (p2p.Several{a[1], b[1]}).RecvForward(ctx, p2p.Call{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	late := one(1)
	r.wait(a[0].SendForward(late, p2p.Call{}))
	if !late[0].Released() {
		t.Error("what nobody waits for is kept")
	}
	for _, p := range append(a, b...) {
		p.Close(nil)
	}
}

// TestRandom: stages call in random orders; everything that is sent arrives in order.
func TestRandom(t *testing.T) {
	r := newRig(t)
	for name, network := range networks(r) {
		const stages, messages = 4, 60
		p := network(stages, p2p.Config{})
		var wg sync.WaitGroup
		for rank, port := range p {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(rank), 1))
				var receive [2][]*p2p.Handle
				left := [4]int{messages, messages, messages, messages}
				for left != [4]int{} {
					k := rng.IntN(4)
					if left[k] == 0 {
						continue
					}
					n := messages - left[k]
					left[k]--
					x := func() []tensorops.Tensor { return []tensorops.Tensor{r.tensor(float32(n), float32(rank))} }
					switch k {
					case 0:
						port.SendForward(x(), p2p.Call{})
					case 1:
						port.SendBackward(x(), p2p.Call{})
					case 2:
						receive[0] = append(receive[0], port.RecvForward(p2p.Call{}))
					default:
						receive[1] = append(receive[1], port.RecvBackward(p2p.Call{}))
					}
				}
				for way, handles := range receive {
					for n, h := range handles {
						got, err := h.Wait(r.ctx)
						ts, from := got.Forward, rank-1
						if way == 1 {
							ts, from = got.Backward, rank+1
						}
						want := [][]float32{{float32(n), float32(from)}}
						if from < 0 || from == stages {
							want = nil
						}
						if err != nil || !same(values(ts), want...) {
							t.Errorf("%s: stage %d, %d: %v, %v", name, rank, n, values(ts), err)
							return
						}
					}
				}
			})
		}
		wg.Wait()
		for _, port := range p {
			port.Close(nil)
		}
	}
}

func FuzzTake(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0}, 8)
	f.Fuzz(func(_ *testing.T, header []byte, n int) {
		w := newWires(2)
		defer w.close()
		p := p2p.Over(0, 2, p2p.Config{}, w.ends[0])
		defer p.Close(nil)
		if payload, done, err := w.ends[0].receiver.Take(1, header, []int{n}, nil); err == nil {
			if len(payload) != 1 || len(payload[0]) != n {
				panic("room of another size")
			}
			done(nil)
		}
	})
}

// wires are carriers in memory.
type wires struct{ ends []*wire }

type wire struct {
	*wires
	rank     int
	receiver collective.Receiver
}

func newWires(n int) *wires {
	w := &wires{}
	for rank := range n {
		w.ends = append(w.ends, &wire{wires: w, rank: rank})
	}
	return w
}

func (w *wires) close() {}

func (w *wire) Receive(r collective.Receiver) { w.receiver = r }

func (*wire) Frees(int, int) bool { return false }

func (w *wire) Send(to int, header []byte, payload [][]byte, _ func(bool), done func(error)) {
	lens := make([]int, len(payload))
	for i, b := range payload {
		lens[i] = len(b)
	}
	room, taken, err := w.ends[to].receiver.Take(w.rank, slices.Clone(header), lens, nil)
	if err != nil {
		done(err)
		return
	}
	for i, b := range payload {
		copy(room[i], b)
	}
	taken(nil)
	done(nil)
}

func (w *wire) Tell(int, []byte) {}
func (w *wire) Close()           {}
