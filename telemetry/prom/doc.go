// Package prom shows runs to Prometheus, by its client library.
//
// A Collector has the figures of one run or of several, each under a label run. Events feed it
// (Run.Observe); what ranks do and wait for is asked of the run when somebody scrapes. Handler
// serves it from a registry of its own, beside figures of the process and of Go; a program that
// has a registry registers the Collector there. Serve listens by itself.
//
// Names begin with engine_ and end with their unit. Every label has a bounded number of values:
//
//   - run: the runs that are added, and the last limitEnded that have ended;
//   - rank: the first limitRanks ranks of a run, one series each for what it is, does and waits
//     for in a scrape. Over time a rank has a series for each of the 12 states, and one for each
//     kind of wait and each rank that it exchanges anything with;
//   - name: the first limitMetrics figures of the model's own, in the order of their names.
//
// The package must never know the command line or a cluster. Nothing is registered with the
// client's global registry.
package prom
