package plan

import (
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/tensorops"
)

const (
	// MostLaneBytes is the most memory that a process shares with another one on its host for the tensors that it sends there: package
	// lane has two streams for each direction.
	MostLaneBytes = 64 << 20
	// leastLaneBytes is the least payload that always travels through shared memory.
	leastLaneBytes = 32 << 10
)

// LaneBytes returns the memory in bytes that the process of each rank shares with others on its host for the tensors that it sends to
// them; of a process with several ranks, the first has it. A page is taken when something is sent through it first, so this is what
// may be under way at a time: a tensor on each edge between stages, what a rank has for another one in their groups, and the gradients
// of a shadow.
func (p *Plan) LaneBytes(sites []Site, s Shadows) ([]int64, error) {
	type way struct{ from, to string } // processes
	first, sent := make(map[string]int), make(map[way]int64)
	for rank, at := range sites {
		if _, seen := first[at.Process]; !seen {
			first[at.Process] = rank
		}
	}
	send := func(from, to int, bytes int64) {
		a, b := sites[from], sites[to]
		if bytes >= leastLaneBytes && a.Host == b.Host && a.Process != b.Process {
			sent[way{a.Process, b.Process}] += bytes
		}
	}
	if err := p.edgeSends(send); err != nil {
		return nil, err
	}
	for rank := range sites {
		stage := p.stageOf(rank)
		for _, d := range GroupDimensions(p.grid) {
			ranks := p.grid.Group(rank, d)
			bytes := p.groupSends(stage, d)
			for _, other := range ranks {
				send(rank, other, bytes)
			}
		}
		if h := s.Of(rank); h >= 0 {
			send(rank, h, int64(p.trainedOf(stage))*int64(tensorops.Float32.Size()))
		}
	}
	bytes := make([]int64, len(sites))
	for w, n := range sent {
		bytes[first[w.from]] += min(n, MostLaneBytes)
	}
	return bytes, nil
}

// edgeSends calls send for the tensors that a rank sends to one of another stage, once for each edge.
func (p *Plan) edgeSends(send func(from, to int, bytes int64)) error {
	routes := p.model.Routes(p.all)
	for stage := range p.table.NumRanks() {
		transfers, err := p.Transfers(stage)
		if err != nil {
			return err
		}
		each := func(chunk int, bytes int64) {
			other := p.table.RankOf(chunk)
			for rank := range p.grid.World() {
				if at := p.grid.Coordinates(rank); at[grid.Pipeline] == stage {
					at[grid.Pipeline], at[grid.Tensor] = other, min(at[grid.Tensor], p.grid.TensorSize(other)-1)
					send(rank, p.grid.Rank(at), bytes)
				}
			}
		}
		for _, x := range transfers {
			for i, shape := range x.SendForward {
				each(routes[x.Chunk].Outs[i].Chunk, shape.Bytes())
			}
			for i, shape := range x.SendBackward {
				each(routes[x.Chunk].GradIns[i].Chunk, shape.Bytes())
			}
		}
	}
	return nil
}

// groupSends returns the most bytes that a rank of a stage has at a time for another one of its group along a dimension.
func (p *Plan) groupSends(stage int, d grid.Dimension) int64 {
	c, n := p.model.Config, int64(p.grid.Size(d))
	rows := int64(p.cfg.Batch.Microbatch) * int64(p.cfg.Model.Context) / int64(p.grid.Size(grid.Context))
	activation := rows * int64(c.Hidden) * int64(tensorops.Float32.Size())
	switch d {
	case grid.Tensor: // its part of a sum
		return activation / int64(p.grid.TensorSize(stage))
	case grid.Context: // keys and values, or their gradients
		return 2 * activation
	case grid.Expert: // all tokens that the rank routes may choose experts of one rank
		if p.grid.WholeExperts() {
			activation /= int64(p.grid.TensorSize(stage))
		}
		return activation * int64(c.Experts.PerToken)
	}
	return int64(p.trainedOf(stage)) * int64(tensorops.Float32.Size()) / n // parts of gradients
}
