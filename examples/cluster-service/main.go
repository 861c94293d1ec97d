// Command cluster-service shows a Go service that is part of a cluster, with its own actors next to
// Troupe's:
//
//	cluster-service cluster start                                                     start a coordinator
//	cluster-service work --join 127.0.0.1:7070 --token-file worker.token              start a worker
//	cluster-service train --cluster 127.0.0.1:7070 --token-file operator.token FILE   submit a run and watch it
//
// All other arguments go to cli.Main, engine's command line. A coordinator and its workers must be
// the same executable; a program that submits and watches runs may be another one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/troupe-ml/troupe/cli"
)

func main() {
	commands := map[string]func(ctx context.Context, args []string) error{"work": work, "train": train}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		cli.Main() // does not return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := commands[os.Args[1]](ctx, os.Args[2:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cluster-service:", err)
		os.Exit(1)
	}
}

// logger returns the service's logger.
func logger() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }
