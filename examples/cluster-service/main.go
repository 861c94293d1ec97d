// Command cluster-service shows a Go service that takes part in a cluster, with actors of its own
// beside Troupe's:
//
//	cluster-service cluster start                                                     the coordinator
//	cluster-service work --join 127.0.0.1:7070 --token-file worker.token              a worker
//	cluster-service train --cluster 127.0.0.1:7070 --token-file operator.token FILE   begins a run and watches it
//
// All that is not work or train is engine's command line, cli.Main: a coordinator and its
// workers must be the same program, to the bit. Who begins and watches runs may be another.
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

// logger is the service's own.
func logger() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }
