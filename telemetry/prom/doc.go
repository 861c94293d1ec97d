// Package prom exports the metrics of runs to Prometheus, using Prometheus's client library.
//
// A Collector holds the metrics of one or several runs, each under its label run. Run.Observe feeds it
// with events. At each scrape it queries what ranks do and wait for. Handler serves the Collector with
// the metrics of the process and of Go. A program with its own registry registers the Collector there
// instead. Serve starts an HTTP server, and ServeAll one that also answers whether the process works
// (package health). NewProcess collects the metrics of a cluster's coordinator or worker.
//
// Names begin with engine_ and end with their unit. Every label has a bounded number of values:
//
//   - run: the active runs, and the last limitEnded that have ended;
//   - rank: the first limitRanks ranks of a run. A scrape has one series for the rank's
//     description, state and wait each. Over time a rank has a series for each of the 12
//     states, and one for each kind of wait and each rank that it exchanges messages with;
//   - name: the first limitMetrics metrics that the model's own layers report, sorted by name.
//
// The package must not depend on the command line or on a cluster. It registers nothing with the client library's
// global registry.
package prom
