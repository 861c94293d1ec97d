// Package forecast predicts how long a training step takes and recommends how to cut a model into
// pipeline stages. It measures the layers' passes, simulates schedules with these costs, and searches for the
// fastest plan that fits the devices' memory.
//
// # Costs
//
// Measure times each pass of each layer on this machine. It measures a sample of the model that takes at
// most half of the free memory (sample.go), with layers of every kind (kinds.go). Estimate derives the costs for a GPU from its data sheet
// (internal/host/gpus).
//
// In a grid, plan.Record shows the operations of one pass of each kind, without running the collectives. The package simulates
// each list's computing together with its collectives (collectives.go), which gives the cost of an action for the
// scheduler's simulator. A rank of a tensor group has the share of a layer's cost that its list has of the whole layer's
// list. Messages have the rate that was measured while all workers send at once. The computing time that messages cost a
// rank is measured while all workers compute and send (cluster.Forecast), because the operating
// system's part of it belongs to no process. The slowest rank of a group determines a layer's time.
//
// # Search
//
// Recommend lists the possible plans, drops those whose weights alone do not fit, and orders the rest by
// arithmetic (candidates.go). It simulates the first 256, and more if none of them fits. Stages of one kind (the same layers,
// chunk by chunk) are recorded once for all plans of a search. With many ranks, memory is computed for the fullest
// stage of each kind (internal/plan/alike.go). nodes.go finds the links of messages and groups if devices share
// nodes.
//
// A model with experts has, for each grid and schedule, at most two sizes of expert groups, and where exchanges of tokens take long one
// candidate more, which overlaps them (experts.go).
//
// It knows configurations and their plans, stages and the simulator. It must not
// know flags or the terminal.
package forecast
