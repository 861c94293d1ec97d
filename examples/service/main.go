// Command service is an example of a Go service that trains models: an HTTP server with Troupe as a library. It needs
// no other process, and does not link package cluster.
//
//	service --listen 127.0.0.1:8080 --dir runs
//
//	curl --data-binary @input.txt 'localhost:8080/runs?run.steps=1000&pipeline.stages=2'
//	curl -N localhost:8080/runs/ID/events
//	curl localhost:8080/runs/ID
//	curl -d '{"lr": 1e-4, "step": 500}' localhost:8080/runs/ID/rate
//	curl -d '{"prompt": "the ", "tokens": 100}' localhost:8080/runs/ID/generate
//	curl -X POST localhost:8080/runs/ID/stop
//
// Open http://localhost:8080/ui/ to see the runs in a browser.
//
// All requests are in api.go. On SIGTERM or SIGINT the service writes a checkpoint of every run and stops it. To
// resume a run from there, with bit-identical results, use engine run DIR/ID/run/config.toml.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := serve(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// serve runs the service until ctx ends.
func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("service", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8080", "address to listen on, HOST:PORT; any client that can connect may use the service")
	dir := flags.String("dir", "runs", "folder for the runs")
	most := flags.Int("runs", 4, "number of runs that may train at the same time")
	grace := flags.Duration("grace", 30*time.Second, "time that runs have to stop")
	heartbeat := flags.Duration("heartbeat", 10*time.Second, "interval of heartbeats in a stream without events")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	// The actor system of the service: the runs' actors and the service's own actors use it.
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return log }))
	defer system.Shutdown()
	runs, err := openRuns(*dir, *most, system, log)
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newAPI(runs, *heartbeat), ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: limitHeaderBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // ends with Shutdown
	fmt.Println("listening on", listener.Addr())

	select {
	case err = <-served: // the server failed
	case <-ctx.Done():
		log.Info("shutting down")
	}
	// Stop the runs first, which ends the streams of their events, then the other requests.
	err = errors.Join(err, runs.close(*grace))
	last, cancel := context.WithTimeout(context.Background(), *grace)
	defer cancel()
	return errors.Join(err, server.Shutdown(last))
}
