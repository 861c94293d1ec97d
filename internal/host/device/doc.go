// Package device opens what a run or a model computes on: the CPU, and GPUs, those that a
// configuration's ranks ask for. What "auto" asks for it decides by a self-test of
// the GPU (auto.go, selftest.go).
//
// The package must not know models, schedules or files.
package device
