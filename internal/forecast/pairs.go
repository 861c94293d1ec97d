package forecast

import (
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
)

// pairCosts are, by stage, the costs of the actions of overlapped pairs in which one computes while the tokens of the other travel to
// their experts. The time of a pair is that of both lists in turns, divided in proportion to what each takes alone.
func pairCosts(b *plan.Plan, all []grouped, computeMS, alone scheduler.Costs) []map[scheduler.Action]float64 {
	type pair struct{ forward, backward chunkPass }
	costs := make([]map[scheduler.Action]float64, len(all))
	for stage, row := range b.Table().Ranks {
		costs[stage] = make(map[scheduler.Action]float64)
		g, known := all[stage], make(map[pair]float64) // the share of the sum that a pair takes
		for i := 0; i < len(row); i += scheduler.Width(row, i) {
			if scheduler.Width(row, i) == 1 {
				continue
			}
			var parts [2][]step
			var keys [2]chunkPass
			sum := 0.0
			for k := range parts {
				a := row[i+k]
				keys[k] = chunkPass{int(a.Chunk), g.passOf(a)}
				parts[k] = timed(g.passes[keys[k]], computeMS(stage, a))
				sum += alone(stage, a)
			}
			share, there := known[pair{keys[0], keys[1]}]
			if !there {
				if share = 1; sum > 0 {
					share = play(inTurns(parts[:]...), 1).ms / sum
				}
				known[pair{keys[0], keys[1]}] = share
			}
			for k := range parts {
				a := row[i+k]
				a.Overlap = false
				costs[stage][a] = share * alone(stage, a)
			}
		}
	}
	return costs
}

// timed returns steps whose shares are milliseconds.
func timed(steps []step, ms float64) []step {
	if len(steps) == 0 {
		return []step{{share: ms}}
	}
	out := make([]step, len(steps))
	for i, s := range steps {
		s.share *= ms
		out[i] = s
	}
	return out
}

// inTurns returns the steps of lists that are recorded into one, each of which gives way to the next where it would wait for one
// collective: see stages.ActTogether.
func inTurns(lists ...[]step) (all []step) {
	parts, lengths := make([][][]step, len(lists)), make([]int, len(lists))
	for i, steps := range lists {
		from := 0
		one := func(k int) bool { return steps[k].awaits && steps[k].number > 0 }
		for k := range steps {
			if one(k) && (k == 0 || !one(k-1)) {
				parts[i] = append(parts[i], steps[from:k])
				from = k
			}
		}
		parts[i] = append(parts[i], steps[from:])
		lengths[i] = len(parts[i])
	}
	next, numbers, begun := make([]int, len(lists)), make([]map[int]int, len(lists)), 0
	for i := range numbers {
		numbers[i] = make(map[int]int)
	}
	for _, i := range scheduler.Turns(lengths...) {
		for _, s := range parts[i][next[i]] {
			switch {
			case s.begins:
				begun++
				numbers[i][s.number] = begun
				s.number = begun
			case s.awaits && s.number > 0:
				s.number = numbers[i][s.number] // 0, if its group has one rank: there is nothing to wait for
				if s.number == 0 {
					continue
				}
			}
			all = append(all, s)
		}
		next[i]++
	}
	return all
}
