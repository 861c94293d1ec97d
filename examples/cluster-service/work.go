package main

import (
	"context"
	"flag"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/cluster"
)

// work is a service that computes ranks for a cluster. The stages' actors run in the service's actor
// system, next to its own actors.
func work(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("cluster-service work", flag.ContinueOnError)
	cfg := cluster.WorkerConfig{Logger: logger()}
	flags.StringVar(&cfg.Join, "join", "127.0.0.1:7070", "the coordinator's host:port")
	flags.StringVar(&cfg.Name, "name", "service", "the worker's name in the cluster")
	flags.IntVar(&cfg.Threads, "threads", 0, "CPU threads; 0: all cores")
	tokenFile := flags.String("token-file", "worker.token", "file with a worker's token")
	err := flags.Parse(args)
	if err == nil {
		cfg.Token, err = cluster.ReadTokenFile(*tokenFile)
	}
	if err != nil {
		return err
	}

	cfg.System = actor.NewActorSystem()
	defer cfg.System.Shutdown()
	// The service's own actors. Other processes can't reach them.
	cfg.System.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		if _, ok := ctx.Message().(*actor.Started); ok {
			cfg.Logger.Info("the service's own actor has started", "pid", ctx.Self().Id)
		}
	}))
	return cluster.Work(ctx, cfg) // until ctx ends
}
