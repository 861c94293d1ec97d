package stages_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestLoadSeveral: a stage that reads several tensors at a time has the same numbers as one that reads them one after the other. It stops
// after an error, and the other reads on.
func TestLoadSeveral(t *testing.T) {
	const readers = 4
	numbers := func(p *stages.Param, part string, dst []float32) error {
		for i := range dst {
			dst[i] = float32(len(p.Name)+31*len(part)) + float32(i)/8
		}
		return nil
	}
	average := adamw
	average.EMA = 0.9
	for _, o := range []stages.Options{{Optimizer: average}, {Optimizer: adamw, BF16: true, Residual: tensorops.BFloat16, Pack: true}} {
		dev, m := newDevice(t, 2), newModel(t, families[1])
		var saved [2][]stages.Saved
		for i, n := range []int{1, readers} {
			var met sync.WaitGroup // of the first calls, which are at the same time
			var calls, at atomic.Int64
			met.Add(readers)
			stream := dev.NewStream("load")
			s, err := stages.NewStage(m, stream, []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			err = s.LoadSeveral(func(p *stages.Param, part string, dst []float32) error {
				if now := at.Add(1); now > int64(n) {
					t.Errorf("%d tensors are read at a time, want %d", now, n)
				}
				defer at.Add(-1)
				if n > 1 && calls.Add(1) <= readers {
					met.Done()
					met.Wait()
				}
				return numbers(p, part, dst)
			}, true, n)
			if err != nil {
				t.Fatal(err)
			}
			arena := tensorops.NewHostMemory(0).NewArena("copies")
			defer arena.Close()
			l := stream.NewList()
			saved[i] = s.Save(l, arena)
			if err := tensorops.Run(stream, l); err != nil {
				t.Fatal(err)
			}
			var read atomic.Int64
			cut := errors.New("cut short")
			err = s.LoadSeveral(func(p *stages.Param, part string, dst []float32) error {
				if read.Add(1); strings.Contains(p.Name, "embed") && part != "" {
					return cut
				}
				return numbers(p, part, dst)
			}, true, n)
			if !errors.Is(err, cut) || !strings.Contains(err.Error(), "embed") || n > 1 && read.Load() > 8*readers {
				t.Errorf("%d at a time: %v after %d tensors", n, err, read.Load())
			}
		}
		if len(saved[0]) == 0 || len(saved[0]) != len(saved[1]) {
			t.Fatalf("%d and %d tensors", len(saved[0]), len(saved[1]))
		}
		for i, v := range saved[0] {
			if w := saved[1][i]; v.Name != w.Name || !bytes.Equal(v.Bytes(), w.Bytes()) {
				t.Errorf("%s and %s differ", v.Name, w.Name)
			}
		}
	}
}
