package layertest

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// source makes an input of the layer from the rig's numbers, and takes its gradient.
type source struct {
	rig   *rig
	input int
}

// Params returns one unused parameter: without it the source would get no gradient.
func (s *source) Params() []stages.LayerParam {
	if s.rig.o.Inputs[s.input].DType != tensorops.Float32 {
		return nil
	}
	return []stages.LayerParam{{Name: "unused", Shape: []int{1}}}
}

func (s *source) Forward(p *stages.Pass, _ []tensorops.Tensor) []tensorops.Tensor {
	a := s.rig.inputs[s.rig.microbatch][s.input]
	t := p.Alloc(a.DType(), a.Shape...)
	p.Upload(t, a.Bytes())
	return []tensorops.Tensor{t}
}

func (s *source) InputGrad(p *stages.Pass, _, dout []tensorops.Tensor) []tensorops.Tensor {
	if dout[0].Valid() {
		s.rig.got.inputGrads[s.rig.microbatch][s.input] = fetch(p, dout[0])
	}
	return nil
}

func (*source) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {}

// fetch records a copy of a tensor to host memory.
func fetch(p *stages.Pass, t tensorops.Tensor) tensorops.Array {
	if !t.Valid() || p.Err() != nil {
		return tensorops.Array{}
	}
	a := tensorops.NewArray(t.DType(), t.Shape())
	dense, owned := contiguous(p, t)
	p.Fetch(a.Bytes(), dense)
	if owned {
		p.Free(dense)
	}
	return a
}

// contiguous returns the tensor if it is contiguous, otherwise a copy that the caller owns.
func contiguous(p *stages.Pass, t tensorops.Tensor) (dense tensorops.Tensor, owned bool) {
	if t.Contiguous() {
		return t, false
	}
	dense = p.AllocLike(t)
	p.Copy(dense.Matrix(), t.Matrix())
	return dense, true
}

// functional is the loss after the layer: y·c with random numbers c, which are therefore the
// gradient of y. It is computed as (|y+c|² − |y−c|²)/4, since sums of squares are in float64 on
// every device.
type functional struct {
	rig *rig
	n   int // number of the layer's outputs
}

func (*functional) Params() []stages.LayerParam { return nil }

func (f *functional) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	host := p.Host(2 * f.n)
	clear(host)
	for i, y := range in {
		if !p.WantsGrad(i) || p.Err() != nil {
			continue
		}
		if y.DType() != tensorops.Float32 {
			p.Fail(fmt.Errorf("output %d is %v, but gradients are float32: NoGrad(%d) must return true", i, y, i))
			break
		}
		y, owned := contiguous(p, y)
		c, sum := p.AllocLike(y), p.Alloc(tensorops.Float64, 1)
		for k, sign := range []float32{1, -1} {
			numbers := f.rig.factors(i, y, sign)
			p.Upload(c, tensorops.HostBytes(numbers))
			p.Add(c, c, y)
			p.SquaredNorm(sum, c)
			p.Fetch(tensorops.HostBytes(host[2*i+k:][:1]), sum)
		}
		p.Free(sum)
		if owned {
			p.Free(y)
		}
		if !p.Train() {
			p.Free(c)
			continue
		}
		p.Upload(c, tensorops.HostBytes(f.rig.factors(i, y, 1)))
		p.Save(i, c)
	}
	return nil
}

func (*functional) InputGrad(p *stages.Pass, in, _ []tensorops.Tensor) []tensorops.Tensor {
	din := make([]tensorops.Tensor, len(in))
	for i := range in {
		din[i] = p.Saved(i)
	}
	return din
}

func (*functional) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {}

func (f *functional) Report(p *stages.Pass) stages.Report {
	r := stages.Report{Targets: 1}
	host := p.Host(2 * f.n)
	for i := range f.n {
		r.Sum += (host[2*i] - host[2*i+1]) / 4
		f.rig.size += (host[2*i] + host[2*i+1]) / 2
	}
	return r
}

// factors returns the numbers by which an output is multiplied.
func (r *rig) factors(output int, y tensorops.Tensor, sign float32) []float32 {
	c := make([]float32, y.Len())
	rng.Normal(c, rng.NewKey(r.o.Seed, rng.StringStream(fmt.Sprintf("layertest/factor/%d/%d", output, r.microbatch))), 0, 0, 1)
	for i, v := range c {
		c[i] = sign * round(v)
	}
	return c
}
