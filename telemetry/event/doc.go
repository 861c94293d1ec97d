// Package event has what a run tells those who watch it: the events of a run, what its actors do
// and wait for, and the changes that can be asked of it.
//
// It knows neither the actors nor the files of a run, so that whatever shows a run needs this
// package alone. Package troupe has these types under its own name.
package event
