package p2p_test

import (
	"errors"
	"testing"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/p2p"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestGroupOfEachStage: in stages with tensor groups of 1, 3 and 2 ranks, each rank receives what is sent to its stage, and what
// all ranks of a stage send arrives once, also in a U-shape.
func TestGroupOfEachStage(t *testing.T) {
	sizes := []int{1, 3, 2}
	for name, u := range map[string]bool{"pipeline": false, "U": true} {
		for network, over := range map[string]bool{"local": false, "over": true} {
			t.Run(name+", "+network, func(t *testing.T) {
				r := newRig(t)
				cfgs := make([][]p2p.Config, len(sizes))
				firsts := make([]p2p.Config, len(sizes))
				for s, n := range sizes {
					for _, g := range collective.Local("tp", n) {
						cfgs[s] = append(cfgs[s], p2p.Config{UShape: u, Group: g})
					}
					firsts[s] = cfgs[s][0]
				}
				var ports []*p2p.Port
				if over {
					wires := newWires(len(sizes))
					defer wires.close()
					for s, cfg := range firsts {
						ports = append(ports, p2p.Over(s, len(sizes), cfg, wires.ends[s]))
					}
				} else {
					ports = p2p.LocalOf(firsts)
				}
				of := make([][]*p2p.Port, len(sizes)) // all ranks of each stage
				for s := range sizes {
					of[s] = []*p2p.Port{ports[s]}
					for _, cfg := range cfgs[s][1:] {
						of[s] = append(of[s], p2p.Member(s, len(sizes), cfg))
					}
				}
				all := func(s int, do func(p *p2p.Port) *p2p.Handle) (hs []*p2p.Handle) {
					for _, p := range of[s] {
						hs = append(hs, do(p))
					}
					return hs
				}
				check := func(hs []*p2p.Handle, want ...[]float32) {
					t.Helper()
					for rank, h := range hs {
						got := r.wait(h)
						ts := append(got.Forward, got.Backward...)
						if !same(values(ts), want...) {
							t.Errorf("rank %d has %v, want %v", rank, values(ts), want)
						}
						for _, x := range ts {
							x.Release()
						}
					}
				}
				call := p2p.Call{}
				// Both directions are asked for before anything comes, and the second comes first.
				forward := all(1, func(p *p2p.Port) *p2p.Handle { return p.RecvForward(call) })
				back := all(1, func(p *p2p.Port) *p2p.Handle { return p.RecvBackward(call) })
				check(all(2, func(p *p2p.Port) *p2p.Handle {
					return p.SendBackward([]tensorops.Tensor{r.tensor(9, 8)}, call)
				}))
				check(all(0, func(p *p2p.Port) *p2p.Handle {
					return p.SendForward([]tensorops.Tensor{r.tensor(1, 2), r.tensor(3)}, call)
				}))
				check(forward, []float32{1, 2}, []float32{3})
				check(back, []float32{9, 8})
				for i := range 3 {
					v := float32(i)
					check(all(1, func(p *p2p.Port) *p2p.Handle { return p.SendForward([]tensorops.Tensor{r.tensor(v)}, call) }))
					check(all(2, func(p *p2p.Port) *p2p.Handle { return p.RecvForward(call) }), []float32{v})
				}
				if u { // the last stage's output goes to the first one's end, whose gradient comes back
					check(all(2, func(p *p2p.Port) *p2p.Handle { return p.SendForward([]tensorops.Tensor{r.tensor(5)}, call) }))
					end := p2p.Call{End: true}
					check(all(0, func(p *p2p.Port) *p2p.Handle { return p.RecvForward(end) }), []float32{5})
					check(all(0, func(p *p2p.Port) *p2p.Handle { return p.SendBackward([]tensorops.Tensor{r.tensor(6)}, end) }))
					check(all(2, func(p *p2p.Port) *p2p.Handle { return p.RecvBackward(call) }), []float32{6})
				}
				// A call whose tensors the first rank refuses is refused to all, and the next one is as ever.
				refused := all(1, func(p *p2p.Port) *p2p.Handle { return p.SendForwardRecvForward(nil, call) })
				for rank, h := range refused {
					_, err := h.Wait(r.ctx)
					if want := []error{tensorops.ErrShape, p2p.ErrFirst, p2p.ErrFirst}[rank]; !errors.Is(err, want) {
						t.Errorf("rank %d: %v, want %v", rank, err, want)
					}
				}
				far := 7
				for rank, h := range all(1, func(p *p2p.Port) *p2p.Handle { return p.RecvForward(p2p.Call{Prev: &far}) }) {
					if _, err := h.Wait(r.ctx); !errors.Is(err, p2p.ErrRank) {
						t.Errorf("rank %d: %v, want %v", rank, err, p2p.ErrRank)
					}
				}
				check(all(0, func(p *p2p.Port) *p2p.Handle { return p.SendForward([]tensorops.Tensor{r.tensor(4)}, call) }))
				check(all(1, func(p *p2p.Port) *p2p.Handle { return p.RecvForward(call) }), []float32{4})
				// What the first rank will never get, no rank waits for.
				lost := []*p2p.Handle{of[1][0].RecvForward(call), of[1][1].RecvForward(call)}
				ports[1].Close(errors.New("the test ends"))
				lost = append(lost, of[1][2].RecvForward(call)) // which comes late
				for rank, h := range lost {
					_, err := h.Wait(r.ctx)
					if want := []error{p2p.ErrClosed, p2p.ErrFirst, p2p.ErrFirst}[rank]; !errors.Is(err, want) {
						t.Errorf("rank %d: %v, want %v", rank, err, want)
					}
				}
				for _, ps := range of {
					for _, p := range ps {
						p.Close(nil)
					}
				}
			})
		}
	}
}
