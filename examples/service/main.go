// Command service shows a Go service that trains: an HTTP server of the standard library's, with
// Troupe inside. It needs no other process, and links no cluster.
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
// http://localhost:8080/ui/ shows the runs in a browser.
//
// api.go has all requests. Told to end, by SIGTERM or SIGINT, it stops every run with a checkpoint:
// engine run DIR/ID/run/config.toml goes on from it, with the same bits.
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

// serve is the service, until ctx ends.
func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("service", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8080", "host:port to serve at; whoever reaches it may use it")
	dir := flags.String("dir", "runs", "folder of the runs")
	most := flags.Int("runs", 4, "runs that train at a time")
	grace := flags.Duration("grace", 30*time.Second, "how long runs may take to stop")
	heartbeat := flags.Duration("heartbeat", 10*time.Second, "how often a quiet stream of events says that it is there")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	// The service's own system: the runs' actors live in it, and so do the service's.
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
	case err = <-served: // which it does not do by itself
	case <-ctx.Done():
		log.Info("the service ends")
	}
	// First the runs, whose end ends the streams of their events; then what is left of requests.
	err = errors.Join(err, runs.close(*grace))
	last, cancel := context.WithTimeout(context.Background(), *grace)
	defer cancel()
	return errors.Join(err, server.Shutdown(last))
}
