// Package ui shows runs in a browser: one page that is part of the program, and the data for
// it. A [Server] is an http.Handler. [Server.Attach] gives it a run that trains in this process or
// is followed from it. [Server.Open] gives it a folder of runs that have ended or that other
// processes train; the server only reads folders.
//
// # Who may
//
// Without Options.Authorize the server decides itself (guard.go). On loopback any client may read,
// under a name of this machine: the Host header is checked, so that a foreign page can't read
// through a name of its own. Control takes the token. Elsewhere both take the token, over TLS. The
// token is a header, never a part of an address. Requests of other sites are always refused. A
// service that mounts the handler passes its own policy.
//
// # Data
//
// The page asks for what it draws:
//
//   - a step of the pipeline as arrays of numbers; the scripts of internal/show/draw draw it, as
//     they do in plans and reports;
//   - curves in as many points as there are pixels (package telemetry/history);
//   - a stream of events (stream.go).
//
// While somebody looks at the pipeline of a live run, its actions are recorded, and only then. That
// never changes a bit of the training. Readers never delay a run: each takes the newest data when it
// can, and a reader that takes nothing for a while is cut off.
//
// The module ui/test looks at the page in headless Chromium (make check-ui).
//
// The package must never know of the terminal, the command line, gRPC or the cluster: a service
// that mounts it links none of them.
package ui
