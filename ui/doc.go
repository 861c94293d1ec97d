// Package ui shows runs in a browser: one page that is part of the program, and the data behind
// it. A [Server] is an http.Handler. [Server.Attach] gives it a run that trains in this process or
// is followed from it, [Server.Open] a folder of runs that have ended or that other processes
// train; folders are only read.
//
// # Who may
//
// Without Options.Authorize the server decides itself. On loopback whoever reaches it may read,
// under a name of this machine (the Host header is checked, so that no page of elsewhere reads
// through a name of its own), and control takes the token. Elsewhere both take the token, over TLS.
// The token is a header, never a part of an address. Requests of other sites are refused in any
// case. A service that mounts the handler passes its own policy.
//
// # Data
//
// The page asks for what it draws: a step of the pipeline as arrays of numbers, by
// the scripts of internal/show/draw, which plans and reports have, too; curves in
// as many points as there are pixels (curves.go), a stream of what happens (stream.go). While
// somebody looks at the pipeline of a live run its actions are recorded, else they are not; that
// never changes a bit of the training. Readers never hold a run up: each takes the newest when it
// can, and who takes nothing for a while is cut off.
//
// The package imports the root package, telemetry, scheduler and config. It must never know of the
// terminal, the command line, gRPC or the cluster: a service that mounts it links none of them.
package ui
