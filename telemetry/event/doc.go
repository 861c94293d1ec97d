// Package event defines what a run reports to its watchers: its events, what its actors do and wait
// for, and the changes that a watcher can request.
//
// It depends on neither the actors nor the files of a run, so a program that shows runs needs no other
// package. Package troupe exports these types under the same names.
package event
