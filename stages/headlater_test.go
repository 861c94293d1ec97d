package stages_test

import "testing"

// TestHeadLater: the head's weight gradient has the same bits when it is put off, with
// multi-token prediction too, and nothing is left over.
func TestHeadLater(t *testing.T) {
	for _, family := range families {
		for _, depths := range []int{0, 2} {
			cfg := family
			cfg.MTPLayers, cfg.MTPWeight = depths, 0.3
			m := newModel(t, cfg)
			type result struct {
				loss, norm float64
				held       int64
			}
			train := func(cuts []int, split bool, later func(i int) bool) (rs []result) {
				dev := newDevice(t, 2)
				p := newPipe(t, dev, m, cuts, false)
				for step := range 3 {
					mbs := microbatches(cfg, int64(step+1), 6, 2)
					for i := range mbs {
						mbs[i].HeadLater = later(i)
					}
					loss, norm := p.step(step+1, mbs, split)
					rs = append(rs, result{loss, norm, dev.Memory().InUse})
				}
				return rs
			}
			for _, cuts := range [][]int{nil, {2}} {
				want := train(cuts, false, func(int) bool { return false })
				for _, split := range []bool{false, true} {
					for name, later := range map[string]func(int) bool{"all": func(int) bool { return true },
						"the last": func(i int) bool { return i == 2 }} {
						for i, got := range train(cuts, split, later) {
							if got != want[i] {
								t.Errorf("%s, depths %d, cuts %v, split %v, %s: step %d has %+v, want %+v", cfg.Family, depths, cuts, split, name, i+1, got,
									want[i])
							}
						}
					}
				}
			}
		}
	}
}
