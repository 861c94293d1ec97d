package attempt

import (
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// RateAfter returns the learning rate over time as it is after a step: that of a run's configuration, with the
// changes of its journal up to that step.
func RateAfter(cfg *config.Config, changes []event.Change, step int64) stages.Rate {
	r := rateOf(cfg)
	for _, c := range changes {
		if c.Kind == event.ChangeRate && c.Step <= step {
			r = actors.ChangedRate(r, c)
		}
	}
	return r
}
