// Package forecast predicts what a training step takes and recommends how to cut a model
// into pipeline stages: it measures what the layers' passes cost, plays schedules with
// these costs, and looks for the fastest that fits the devices' memory.
//
// It knows configurations and their plans, stages and the simulator. It must not
// know flags or the terminal.
package forecast
