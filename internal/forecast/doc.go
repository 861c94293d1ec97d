// Package forecast predicts how long a training step takes and recommends how to cut a model into
// pipeline stages. It measures the layers' passes, plays schedules with these costs, and looks for the
// fastest one that fits the devices' memory.
//
// # Costs
//
// Measure times each pass of each layer on this machine. It measures a sample of the model that takes at
// most half of the free memory (sample.go). Estimate derives the costs for a GPU from its data sheet
// (internal/host/gpus).
//
// In a grid, plan.Record shows the lists of one pass of each kind, with groups that no transport carries. The package plays
// each list's computing beside its collectives (collectives.go), which gives the cost of an action for the
// simulator. A rank of a tensor group gets the share of a layer's cost that its list has of the whole layer's
// list. Messages take the rate that was measured while all workers send at once. What messages take from a rank's own
// computing is measured while all workers compute and send (cluster.Forecast), because the operating
// system's part of it belongs to no process. The slowest rank of a group sets a layer's time.
//
// # Search
//
// Recommend lists the possible plans, leaves out those whose weights alone don't fit, and orders the rest by
// arithmetic (candidates.go). It plays the first 256, and more while none fits. Stages of one kind (the same layers,
// chunk by chunk) are recorded once for all plans of a search. With many ranks, memory is computed for the fullest
// stage of each kind (internal/plan/alike.go). nodes.go says which links messages and groups have where devices share
// nodes.
//
// It knows configurations and their plans, stages and the simulator. It must not
// know flags or the terminal.
package forecast
