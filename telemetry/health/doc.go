// Package health answers over HTTP whether a process works (/healthz) and whether it can do its job now (/readyz).
//
// A process sets its checks. Each request asks them all at once, and waits for each at most AskTime, so that a part that
// hangs shows in the answer. A check that has not returned is not asked again until it has. The answer is JSON that names
// each part, with status 200 if all are well and 503 otherwise.
//
// The package must never know what a check asks.
package health
