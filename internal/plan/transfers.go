package plan

import (
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
)

// Transfers are the tensors that a rank exchanges for each microbatch of one of its chunks, including skips and those between
// its own chunks.
type Transfers struct {
	Chunk                      int
	RecvForward, SendForward   []stages.Shape // activations
	RecvBackward, SendBackward []stages.Shape // gradients
}

// Transfers returns the transfers of a stage's chunks, in order.
func (p *Plan) Transfers(stage int) ([]Transfers, error) {
	routes := p.model.Routes(p.all)
	all := make([]Transfers, 0, len(p.chunks[stage]))
	for _, spec := range p.chunks[stage] {
		x := Transfers{Chunk: spec.Chunk}
		if p.model.Config.Language() {
			if err := p.residualTransfers(stage, &x, routes[spec.Chunk]); err != nil {
				return nil, err
			}
			all = append(all, x)
			continue
		}
		ins, gradOuts := p.model.Takes(spec)
		x.RecvForward, x.SendForward, x.RecvBackward = p.shapesOf(ins), p.shapesOf(p.model.Gives(spec)), p.shapesOf(gradOuts)
		for _, to := range routes[spec.Chunk].GradIns {
			_, grads := p.model.Takes(p.all[to.Chunk])
			x.SendBackward = append(x.SendBackward, p.shapes[grads[to.Slot]])
		}
		all = append(all, x)
	}
	return all, nil
}

func (p *Plan) shapesOf(values []int) (shapes []stages.Shape) {
	for _, v := range values {
		shapes = append(shapes, p.shapes[v])
	}
	return shapes
}

// residualTransfers adds the transfers of a language model's chunk: the residual stream, once for each depth of multi-token
// prediction.
func (p *Plan) residualTransfers(stage int, x *Transfers, route stages.Route) error {
	in := 1
	for _, symbols := range p.layout.Chunks[:x.Chunk] {
		in += countMTP(symbols)
	}
	out := in + countMTP(p.layout.Chunks[x.Chunk])
	widthIn, widthOut := p.model.EdgeWidth(p.all[x.Chunk].First), p.model.EdgeWidth(p.all[x.Chunk].Last)
	for _, d := range []struct {
		to            *[]stages.Shape
		ports         []stages.Port
		depths, width int
	}{{&x.RecvForward, route.Ins, in, widthIn}, {&x.SendForward, route.Outs, out, widthOut},
		{&x.RecvBackward, route.GradOuts, out, widthOut}, {&x.SendBackward, route.GradIns, in, widthIn}} {
		for range d.ports {
			shape, err := p.edgeShape(stage, d.depths, d.width)
			if err != nil {
				return err
			}
			*d.to = append(*d.to, shape)
		}
	}
	return nil
}

func countMTP(symbols []scheduler.Symbol) (n int) {
	for _, s := range symbols {
		if s == scheduler.SymbolMTP {
			n++
		}
	}
	return n
}

// edgeShape is the shape of a language model's residual stream, and of the channels after it, where it enters or leaves a rank of a stage:
// see stages.Model.EdgeWidth.
func (p *Plan) edgeShape(stage, depths, width int) (stages.Shape, error) {
	dims, err := scheduler.EdgeSizes{Sequences: depths * p.cfg.Batch.Microbatch, Positions: p.cfg.Model.Context, Hidden: width,
		ContextParallel: p.grid.Size(grid.Context), TensorParallel: p.grid.TensorSize(stage), SequenceParallel: p.sequence()}.Shape()
	return stages.Shape{DType: p.EdgeType(), Dims: dims}, err
}

// Spec returns the spec of the table; for a user's own table, that of the configuration.
func (p *Plan) Spec() scheduler.Spec { return p.spec }
