package plan

import (
	"fmt"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/stages"
)

// UseAverage makes a checkpoint's model that of the moving averages of its weights. Weights that were not trained have none and stay.
func UseAverage(c *checkpoint.Checkpoint) error {
	if c.Overlay(stages.EMAPart+".") > 0 {
		return nil
	}
	return fmt.Errorf("%w: %s has no moving averages of its weights: they are in the checkpoints of runs with optimizer.ema, except in "+
		"those that have weights alone, such as best; leave --ema out, or give a checkpoint such as last", ErrOptions, c.Dir())
}
