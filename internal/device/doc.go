// Package device opens what a run or a model computes on: the CPU, and GPUs, those that a
// configuration's ranks ask for.
//
// It may import config, tensorops and the devices. It must not know models, schedules or
// files.
package device
