package plan

import (
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/stages"
)

// checkLoads refuses a step in which a balance loss over all its tokens would not have the same loads under every schedule, or whose
// replicas would not meet to add them.
func (p *Plan) checkLoads() error {
	c := p.cfg
	if !c.BalancesGlobally() || p.model.Config.Experts.Count == 0 {
		return nil
	}
	const key = "model.load_balancing_type"
	refuse := func(format string, a ...any) error {
		return c.Errorf(key, "%q, but "+format, append([]any{config.GlobalBalance}, a...)...)
	}
	if tokens := int64(c.Batch.Sequences) * int64(c.Model.Context); tokens > stages.MaxLoad {
		return refuse("a step has %d tokens, and loads are exact up to %d; reduce batch.sequences, or use another type", tokens,
			stages.MaxLoad)
	}
	n, data := c.Batch.Sequences/c.Batch.Microbatch, p.grid.Size(grid.Data)
	if n%data > 0 {
		return refuse("replicas add their loads in each microbatch, and of %s a step %d replicas would not have equally many; change "+
			"batch.sequences or batch.microbatch, or use another type", words.Plural(n, "microbatch"), data)
	}
	if o := p.report.OutOfOrder; o.InputGrads || o.WeightGrads {
		return refuse("%s runs backwards of a chunk out of the order of the microbatches, whose loads add up in that order; put them in "+
			"ascending order, or use another type", c.Pipeline.Schedule)
	}
	return nil
}
