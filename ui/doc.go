// Package ui shows runs in a browser. It embeds the page and serves its data. A [Server] is an http.Handler.
// [Server.Attach] adds a live run: one that this process trains, or follows on a cluster. [Server.Open] adds a folder
// of runs, which have ended or which other processes train; the server only reads it.
//
// # Access
//
// Without Options.Authorize the server checks access itself (guard.go). On loopback any client may read; the server
// checks the Host header against DNS rebinding, and control needs the access token. On other addresses both need the
// token, over TLS. The token is sent as a header, never as part of an address. The server always refuses cross-site
// requests. A service that mounts the handler can pass its own policy.
//
// # Data
//
// The page loads what it draws:
//
//   - a step of the pipeline as arrays of numbers, which the scripts of internal/show/draw draw;
//   - curves, one point for each pixel (package telemetry/history);
//   - a stream of events (stream.go).
//
// A live run records its actions only while a page shows its pipeline. Recording never changes the results of
// training. Readers never delay a run: each gets the newest data when it is ready, and the server disconnects a
// reader that reads nothing for a while.
//
// The module ui/test tests the page in headless Chromium (make check-ui).
//
// The package must not depend on the terminal, the command line, gRPC or the cluster, so that a service that mounts
// it links none of them.
package ui
