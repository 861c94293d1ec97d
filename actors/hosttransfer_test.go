package actors_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// placement makes the devices of some ranks from a letter for each: a capital is a
// device whose memory is hidden, any other is a CPU; the same letter is the same device.
func placement(t testing.TB, letters string) []tensorops.Device {
	t.Helper()
	made := make(map[rune]tensorops.Device)
	var ranks []tensorops.Device
	for _, letter := range letters {
		if made[letter] == nil {
			if 'A' <= letter && letter <= 'Z' {
				made[letter] = newHidden(t, 1)
			} else {
				made[letter] = newDevice(t, 2)
			}
		}
		ranks = append(ranks, made[letter])
	}
	return ranks
}

// placements are the ways to spread n ranks.
func placements(ranks int) []string {
	switch ranks {
	case 1:
		return []string{"A"}
	case 2:
		return []string{"Aa", "aA", "AA", "AB", "ab"}
	case 3:
		return []string{"AaA", "aAB", "aab"}
	}
	return []string{"AaBb", "aAAa"}
}

// TestHostTransferChangesNoBit: devices that compute alike give the same figures and state to
// the last bit however the ranks are spread over them, and whether or not the host can
// address their memory.
func TestHostTransferChangesNoBit(t *testing.T) {
	const m, steps = sequences / microbatchSize, 8
	plain := training{threads: 1, steps: steps, evalLens: []int{6, 4}, table: generate(t,
		scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: m})}
	for i, model := range families {
		plain.model = small(model)
		unclipped, _ := regime{training: plain}.run(t, false)
		r := regime{training: plain, clip: median(unclipped.norms()), spoilt: []int{5}, evalEvery: 3, ckEvery: 4}
		want, _ := r.run(t, false)
		for name, p := range pipelined(t) {
			for _, letters := range placements(p.table.NumRanks()) {
				if i > 0 && letters != "Aa" {
					continue // the second family differs in its layers alone
				}
				t.Run(fmt.Sprintf("%s, %s on %s", model.Family, name, letters), func(t *testing.T) {
					p.model, p.steps, p.evalLens = r.model, r.steps, r.evalLens
					l := &log{}
					spec := regime{training: p, clip: r.clip, spoilt: r.spoilt, evalEvery: r.evalEvery, ckEvery: r.ckEvery}.spec(t, l)
					spec.Device, spec.Devices, spec.PostValidate = nil, placement(t, letters), true
					run := start(t, spec)
					if out := wait(t, run); out.Err != nil {
						t.Fatal(out.Err)
					}
					if a, b := l.figures(), want.figures(); !slices.Equal(a, b) {
						t.Errorf("%x, on one device %x", a, b)
					}
					sameSaves(t, want, l)
					crossed := run.HostTransfers()
					if crosses := strings.ContainsAny(letters, "AB") && letters != "A" && letters != "AA"; (crossed.Peak > 0) != crosses ||
						crossed.InUse != 0 || crossed.Pooled != 0 {
						t.Errorf("%+v of the run's own memory", crossed)
					}
				})
			}
		}
	}
}

// TestHostTransferIsBounded: what is under way from one device to another is no more than
// credits allow, and the parts of tied gradients.
func TestHostTransferIsBounded(t *testing.T) {
	for _, c := range []struct {
		spec    scheduler.Spec
		letters string
	}{
		{scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 8}, "Aa"},
		{scheduler.Spec{Schedule: scheduler.GPipe, Ranks: 3, Chunks: 1, Microbatches: 8}, "AaB"},
		{scheduler.Spec{Schedule: scheduler.ZBV, Ranks: 2, Chunks: 2, Microbatches: 8}, "aA"},
		{scheduler.Spec{Schedule: scheduler.DualPipeV, Ranks: 2, Chunks: 2, Microbatches: 8}, "AB"},
	} {
		table := generate(t, c.spec)
		spec := fakeRun{table: table, threads: 1, steps: 20, evalLens: []int{4, 4}, spin: 20 * time.Microsecond}.spec(t, &log{})
		spec.Device, spec.Devices = nil, placement(t, c.letters)
		run := start(t, spec)
		if out := wait(t, run); out.Err != nil {
			t.Fatal(out.Err)
		}
		report, err := scheduler.Check(table)
		if err != nil {
			t.Fatal(err)
		}
		tensors := 2 * table.NumRanks() // that lists under way have taken, two of a pair
		for _, credits := range [][]int{report.Credits.Forward, report.Credits.Backward} {
			for _, n := range credits {
				tensors += n
			}
		}
		_, size := tensorops.SizeClass(1)
		if m := run.HostTransfers(); m.Peak == 0 || m.Peak > int64(tensors*size) || m.InUse != 0 {
			t.Errorf("%s on %s: %+v of the run's own memory, want at most %d tensors of %d bytes", c.spec.Schedule, c.letters, m, tensors, size)
		}
		nothingLeft(t, c.letters, run, spec.Devices)
	}
}

// nothingLeft reports tensors that a run has lost.
func nothingLeft(t *testing.T, what string, run *actors.Run, devices []tensorops.Device) {
	t.Helper()
	if m := run.HostTransfers(); m.InUse != 0 || m.Pooled != 0 {
		t.Errorf("%s: %+v is left of the run's own memory", what, m)
	}
	for r, d := range devices {
		if m := d.Memory(); m.InUse != 0 {
			t.Errorf("%s: %d bytes of tensors are left on the device of rank %d", what, m.InUse, r)
		}
	}
}

// TestHostTransferLeavesNothing: however a run ends that is spread over devices, neither
// tensors nor goroutines are left.
func TestHostTransferLeavesNothing(t *testing.T) {
	table := generate(t, scheduler.Spec{Schedule: scheduler.ZBH2, Ranks: 3, Chunks: 1, Microbatches: 6})
	for _, letters := range placements(3) {
		for name, end := range map[string]func(t *testing.T, spec actors.Spec) *actors.Run{
			"killed": func(t *testing.T, spec actors.Spec) *actors.Run {
				run := start(t, spec)
				eventually(t, run, "a step", func() bool { return run.Status().Actors[0].Step > 3 })
				run.Kill()
				return run
			},
			"killed with a step ahead": func(t *testing.T, spec actors.Spec) *actors.Run {
				h := holdAhead(t, spec, 2)
				h.run.Kill()
				h.gate.open()
				return h.run
			},
			"paused with a step ahead": func(t *testing.T, spec actors.Spec) *actors.Run {
				h := holdAhead(t, spec, 2)
				h.request(h.run.Pause) // the step ahead is aborted
				h.gate.open()
				h.request(h.run.Resume)
				eventually(t, h.run, "a step", func() bool { return h.run.Status().Actors[0].Step > 5 })
				h.run.Stop()
				return h.run
			},
			"a list refused": func(t *testing.T, spec actors.Spec) *actors.Run {
				return start(t, failing(spec, func(l *tensorops.List, rank int, what string, index int) {
					if rank == 1 && what == "I" && index == 3 {
						l.Fail(errBoom)
					}
				}))
			},
			"a gradient refused": func(t *testing.T, spec actors.Spec) *actors.Run {
				whole := spec.Build
				spec.Build = func(rank int, s tensorops.Stream) (actors.Compute, error) {
					c, err := whole(rank, s)
					if rank == 0 {
						c = refusesTied{c}
					}
					return c, err
				}
				return start(t, spec)
			},
		} {
			t.Run(name+", "+letters, func(t *testing.T) {
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
				spec := fakeRun{table: table, threads: 2, steps: 1 << 30, untied: strings.Contains(name, "ahead")}.spec(t, &log{})
				spec.Device.Close()
				spec.Device, spec.Devices = nil, placement(t, letters)
				defer func() {
					for _, d := range spec.Devices {
						d.Close()
					}
				}()
				run := end(t, spec)
				out := wait(t, run)
				if refused := strings.HasSuffix(name, "refused"); errors.Is(out.Err, errBoom) != refused {
					t.Errorf("the run ends with %v", out.Err)
				}
				nothingLeft(t, name, run, spec.Devices)
			})
		}
	}
}

// failing makes a run of fakes do something at some of its actions.
func failing(spec actors.Spec, do func(l *tensorops.List, rank int, what string, index int)) actors.Spec {
	whole := spec.Build
	spec.Build = func(rank int, s tensorops.Stream) (actors.Compute, error) {
		c, err := whole(rank, s)
		c.(*fake).hook = func(l *tensorops.List, rank int, what string, _, index int) { do(l, rank, what, index) }
		return c, err
	}
	return spec
}

// refusesTied takes no gradient from another rank.
type refusesTied struct{ actors.Compute }

func (refusesTied) TakeTied(stages.TiedGrad) error { return errBoom }

// TestHostTransferOutOfMemory: what comes in finds no memory, the run ends with that.
func TestHostTransferOutOfMemory(t *testing.T) {
	table := generate(t, scheduler.Spec{Schedule: scheduler.GPipe, Ranks: 2, Chunks: 1, Microbatches: 4})
	spec := fakeRun{table: table, threads: 1, steps: 2, untied: true}.spec(t, &log{})
	spec.Device, spec.Devices = nil, placement(t, "aA")
	small := spec.Devices[1].(*hidden)
	spec = failing(spec, func(_ *tensorops.List, rank int, what string, index int) {
		if rank == 1 && what == "F" && index == 1 { // its input is there, the next one's finds nothing
			small.allow(1)
		}
	})
	run := start(t, spec)
	out := wait(t, run)
	if !errors.Is(out.Err, tensorops.ErrOutOfMemory) || !strings.HasPrefix(out.Err.Error(), "stage 1 failed in step 1: ") {
		t.Errorf("the run ends with %v", out.Err)
	}
	nothingLeft(t, "out of memory", run, spec.Devices)
	// Without any memory the stage cannot be made.
	out = wait(t, start(t, spec))
	if !errors.Is(out.Err, tensorops.ErrOutOfMemory) || !strings.HasPrefix(out.Err.Error(), "stage 1 failed in step 0: ") {
		t.Errorf("the run ends with %v", out.Err)
	}
}

// TestDevices: each rank has one that can be told from others.
func TestDevices(t *testing.T) {
	one := newDevice(t, 1)
	for name, devices := range map[string][]tensorops.Device{
		"too few":       {one},
		"too many":      {one, one, one},
		"none of one":   {one, nil},
		"no comparison": {one, uncomparable{Device: one}},
	} {
		spec := fourSteps(t, &log{})
		spec.Devices = devices
		if _, err := actors.Start(spec); !errors.Is(err, actors.ErrSpec) {
			t.Errorf("%s: error %v, want ErrSpec", name, err)
		}
	}
	spec := fourSteps(t, &log{})
	spec.Device = nil
	if _, err := actors.Start(spec); !errors.Is(err, actors.ErrSpec) {
		t.Errorf("no device: error %v, want ErrSpec", err)
	}
	spec.Device = uncomparable{Device: one} // a single one need not be told from others
	if out := wait(t, start(t, spec)); out.Err != nil {
		t.Error(out.Err)
	}
}

type uncomparable struct {
	tensorops.Device
	_ []int
}
