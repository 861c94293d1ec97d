package plan

import "github.com/troupe-ml/troupe/scheduler"

// DryRun is dryRun.
func (p *Plan) DryRun(rank int, row []scheduler.Action) (int64, error) { return p.dryRun(rank, row) }
