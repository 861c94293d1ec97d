//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// TestTensorParallel: layers that two streams of the stand-in share have the loss and the gradient of
// whole ones on the oracle.
func TestTensorParallel(t *testing.T) {
	useStandIn(t)
	dev, err := cuda.New(device.CUDAOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	oracle := ref.New()
	defer oracle.Close()
	m, err := stages.NewModel(stages.Config{Family: stages.Qwen2, Layers: 1, Hidden: 16, Heads: 4, KVHeads: 1, FFN: 22, Context: 8, Vocab: 19,
		Dropout: 0.1, RopeTheta: 1000})
	if err != nil {
		t.Fatal(err)
	}
	loss, norm := tensorStep(t, oracle, m, 1, false)
	for _, sequence := range []bool{false, true} {
		gotLoss, gotNorm := tensorStep(t, dev, m, 2, sequence)
		if !(math.Abs(gotLoss-loss) < 1e-5*loss) || !(math.Abs(gotNorm-norm) < 1e-4*norm) {
			t.Errorf("sequence %v: loss %g and squared norm %g, of whole layers %g and %g", sequence, gotLoss, gotNorm, loss, norm)
		}
	}
}

// tensorStep is the loss of a microbatch, and its gradient's squared norm.
func tensorStep(t *testing.T, dev tensorops.Device, m *stages.Model, size int, sequence bool) (loss, norm float64) {
	t.Helper()
	mb := stages.Microbatch{Step: 1, Sequences: 2, Positions: 8, Train: true}
	for i := range 16 {
		mb.Tokens, mb.Targets = append(mb.Tokens, int32(i*7%19)), append(mb.Targets, int32(i*5%19))
	}
	losses, norms, errs := make([]float64, size), make([]float64, size), make([]error, size)
	var all sync.WaitGroup
	for rank, g := range collective.Local("tensor", size) {
		all.Go(func() {
			s := dev.NewStream("rank")
			defer s.Close()
			o := stages.Options{Seed: 3, Optimizer: stages.Optimizer{Name: stages.SGD}, Tensor: stages.TensorParallel{Group: g, Sequence: sequence}}
			st, err := stages.NewStage(m, s, []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
			if err == nil {
				err = st.Load(stages.InitWeights(3), false)
			}
			for _, record := range []func(l *tensorops.List){
				func(l *tensorops.List) { st.Forward(l, 0, &mb) },
				func(l *tensorops.List) { losses[rank], _ = st.Loss(0, 0); st.Backward(l, 0, 0) },
				func(l *tensorops.List) { st.GradNorms(l) },
			} {
				if err == nil {
					l := s.NewList()
					record(l)
					err = tensorops.Run(s, l)
				}
			}
			if errs[rank] = err; err != nil {
				g.Leave(err)
				return
			}
			for _, n := range st.Norms(nil) {
				norms[rank] += n.Squared
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for rank := range size {
		if norm += norms[rank]; losses[rank] != losses[0] {
			t.Errorf("rank %d has the loss %g, rank 0 %g", rank, losses[rank], losses[0])
		}
	}
	return losses[0], norm
}
