// Package serve answers HTTP requests with a language model, over the routes of OpenAI's API that programs use most:
// /v1/chat/completions, /v1/completions and /v1/models, whole or streamed (server-sent events). Texts that are requested at
// the same time are generated together: see infer.Batch.
//
//	batch, err := infer.OpenBatch(infer.ModelOptions{From: "runs/first"}, infer.BatchOptions{Texts: 8})
//	server, err := serve.New(batch, serve.Options{Name: "first"})
//	err = server.Serve(ctx, listener)
//
// Each key of a request is used, or refused with its name (request.go). Errors have the form of that API (errors.go). Each
// request has a limit in limits.go: its body, its tokens, the texts that wait. A client that does not read is disconnected.
//
// On loopback any program of the machine may use a server without a token; requests of web pages are refused. Elsewhere a
// server needs TLS and a token.
//
// It must not know how a text is generated, nor flags and terminals.
package serve
