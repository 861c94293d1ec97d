package prom

import (
	"slices"
	"strconv"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// states and waits are the values of the labels for what a rank does and waits for.
var (
	states = map[event.Doing]string{event.Idle: "idle", event.Starting: "starting", event.Running: "running", event.Waiting: "waiting",
		event.Reducing: "reducing", event.Updating: "updating",
		event.Copying: "copying", event.Reading: "reading", event.Writing: "writing", event.Paused: "paused", event.Finished: "finished",
		event.Failing: "failed"}
	waits = map[event.Wait]string{event.WaitActivation: "activation", event.WaitGradient: "gradient", event.WaitTokens: "tokens",
		event.WaitCredit: "credit", event.WaitTied: "tied_gradient",
		event.WaitOrder: "order", event.WaitStages: "stages", event.WaitDecision: "decision", event.WaitDisk: "disk", event.WaitRoom: "room",
		event.WaitGroup: "group", event.WaitState: "state", event.WaitShadow: "shadow"}
)

// other is the value for states and waits that are not listed.
const other = "other"

func word[K comparable](words map[K]string, k K) string {
	if w, ok := words[k]; ok {
		return w
	}
	return other
}

// ranks adds the metrics of each rank. A memory of 0 means unknown.
func (t *teller) ranks(s troupe.Status, memory []int64, bubbles []float64) {
	known := make(map[string]string, len(s.Actors)) // label value by actor
	var all []event.Snapshot
	for _, a := range s.Actors {
		known[a.Actor] = label(a.Actor) // one of the few actors that are not ranks
		if a.Rank >= 0 {
			known[a.Actor] = strconv.Itoa(a.Rank)
			all = append(all, a)
		}
	}
	slices.SortStableFunc(all, func(a, b event.Snapshot) int { return a.Rank - b.Rank })
	told := -1
	for _, a := range all {
		if a.Rank == told || a.Rank >= limitRanks {
			continue
		}
		told = a.Rank
		rank := strconv.Itoa(a.Rank)
		t.gauge(descRankInfo, 1, rank, label(a.Actor), label(a.Host))
		t.gauge(descRankState, 1, rank, word(states, a.Doing))
		if a.Wait != event.WaitNothing {
			from, ok := known[a.From]
			if !ok {
				from = other
			}
			t.gauge(descRankWait, max(0, s.Time.Sub(a.Since).Seconds()), rank, word(waits, a.Wait), from)
		}
		if a.Rank < len(memory) && memory[a.Rank] > 0 {
			t.gauge(descRankMemory, float64(memory[a.Rank]), rank)
		}
	}
	for rank, b := range bubbles[:min(len(bubbles), limitRanks)] {
		t.gauge(descRankBubble, b, strconv.Itoa(rank))
	}
}
