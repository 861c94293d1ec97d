//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/optest"
	"github.com/troupe-ml/troupe/tensorops"
)

// beside has a dry stream launch what a device's does.
type beside struct {
	*Device
	dry *Dry
}

type besideStream struct {
	tensorops.Stream
	dry *Dry
}

func (d beside) NewStream(name string) tensorops.Stream {
	s := d.Device.NewStream(name)
	if name != "optest" { // of cases: others test queues and errors
		return s
	}
	return besideStream{s, d.dry}
}

func (s besideStream) Submit(l *tensorops.List, done func(error)) {
	s.dry.Launch(l.Ops())
	s.Stream.Submit(l, done)
}

// TestDry: a dry launch takes as much scratch memory as a real one, to the byte, over the table of cases.
func TestDry(t *testing.T) {
	_, path := stand(t)
	for _, test := range []struct {
		name string
		o    Options
	}{
		{"cuBLASLt", Options{BLAS: path}},
		{"cuBLASLt with GELU", Options{BLAS: path, GELU: GELUFused}},
		{"own products", Options{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !long && test.o.BLAS != "" && test.o.GELU == geluByRule {
				t.Skip("the next has more; make check-cuda runs it")
			}
			d := newDevice(t, path, test.o)
			dry := NewDry(d.Path())
			dry.exec.processors = d.gpu.Processors
			seen := make(map[tensorops.Kind]int)
			optest.Run(t, beside{d, dry}, optest.Options{Skip: func(c optest.Case) bool {
				if Refused(c) || tooSlow(c) || !isProductOrFew(c, seen) {
					return true
				}
				seen[c.Kind]++
				return false
			}})
			want := d.TakenBy()["optest (scratch)"]
			if got := dry.memory.Stats().Taken; got != want || want == 0 {
				t.Errorf("%d bytes, the device took %d", got, want)
			}
			fixed := dry.Bytes() - want
			if withBLAS := test.o.BLAS != ""; withBLAS != (fixed > workspaceBytes) || fixed > workspaceBytes+1<<20 {
				t.Errorf("%d bytes besides", fixed)
			}
		})
	}
}

// isProductOrFew takes the products that take little time, and of all else a case or two.
func isProductOrFew(c optest.Case, seen map[tensorops.Kind]int) bool {
	switch c.Kind {
	case tensorops.KindMatMul:
		return fewFused(c) && (long || strings.Contains(c.Name, "bf16")) || strings.HasPrefix(c.Name, "matmul/NN/") &&
			strings.Contains(c.Name, "variants")
	case tensorops.KindPack:
		return c.Name == "pack/NN/bf16" && long
	default:
		return seen[c.Kind] < 2
	}
}
