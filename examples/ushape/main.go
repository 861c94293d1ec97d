// Command ushape trains a model on data that never leaves its host (layer-wise disaggregated training):
//
//	ushape edge --listen HOST:PORT config.toml        on the host with the data
//	ushape cloud --join HOST:PORT --name cloud-0      on each other host
//
// The edge runs the embedding, the first and the last layers, the head and the loss; the other hosts run the layers between.
// README.md says what leaves the edge.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	commands := map[string]func(context.Context, []string) error{"edge": edge, "cloud": cloud}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr,
			"usage: ushape edge [--listen HOST:PORT] [--token-file FILE] CONFIG\n       ushape cloud --join HOST:PORT --name NAME [--token-file FILE]")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](ctx, os.Args[2:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ushape:", err)
		os.Exit(1)
	}
}

// logger returns a process's logger. It logs which workers join, and at the end of a run what was sent to each process.
func logger() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }

// edgeWorker is the name of the worker in the edge's process, as in the config's cluster.place.
const edgeWorker = "edge"

// edge runs the coordinator, the worker of the first stage, and the training run.
func edge(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("ushape edge", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:7070", "host:port at which the other hosts reach this process")
	tokenFile := flags.String("token-file", "cloud.token", "file to write the join token for the other hosts to")
	threads := flags.Int("threads", 0, "CPU threads; 0: all cores")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("give one config file")
	}
	cfg, err := config.Load(flags.Arg(0), nil, os.LookupEnv)
	if err != nil {
		return err
	}
	log := logger()
	c, err := cluster.NewCoordinator(cluster.Config{Listen: *listen, Logger: log})
	if err != nil {
		return err
	}
	defer c.Close()
	own, err := c.NewToken(cluster.RoleWorker, time.Hour)
	if err != nil {
		return err
	}
	working, done := context.WithCancel(ctx)
	defer done()
	worked := make(chan error, 1)
	go func() { // ends with working
		defer done()
		worked <- cluster.Work(working, cluster.WorkerConfig{Join: c.Address(), Token: own, Name: edgeWorker, Threads: *threads, Logger: log})
	}()
	err = train(working, c, cfg, *tokenFile)
	done()
	return errors.Join(err, <-worked)
}

// train waits for the other workers and trains with them.
func train(ctx context.Context, c *cluster.Coordinator, cfg *config.Config, tokenFile string) error {
	token, err := c.NewToken(cluster.RoleWorker, 24*time.Hour)
	if err == nil {
		err = cluster.WriteTokenFile(tokenFile, token)
	}
	if err != nil {
		return err
	}
	fmt.Println("listening at", c.Address())

	workers := slices.Compact(slices.Sorted(slices.Values(cfg.Cluster.Place)))
	if err := c.Wait(ctx, len(workers)); err != nil {
		return err
	}
	run, err := troupe.Start(ctx, cfg, troupe.Options{Hosts: c.Hosts()})
	if err != nil {
		return err
	}
	for e := range run.Events() {
		switch e := e.(type) {
		case troupe.StepEvent:
			if e.Loss != nil {
				fmt.Printf("step %d loss %.4f\n", e.Step, *e.Loss)
			}
		case troupe.RestartEvent:
			fmt.Printf("%v; resuming from the last checkpoint\n", e.Err)
		case troupe.WarningEvent:
			fmt.Println(e.Text)
		}
	}
	result, err := run.Wait()
	if err == nil {
		fmt.Printf("done at step %d, checkpoint %s\n", result.Step, result.Dir)
	}
	return err
}

// cloud computes the layers between.
func cloud(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("ushape cloud", flag.ContinueOnError)
	cfg := cluster.WorkerConfig{Logger: logger()}
	flags.StringVar(&cfg.Join, "join", "127.0.0.1:7070", "the edge's host:port")
	flags.StringVar(&cfg.Name, "name", "cloud-0", "the worker's name in the config's cluster.place")
	flags.IntVar(&cfg.Threads, "threads", 0, "CPU threads; 0: all cores")
	tokenFile := flags.String("token-file", "cloud.token", "file with the join token from the edge")
	err := flags.Parse(args)
	if err == nil {
		cfg.Token, err = cluster.ReadTokenFile(*tokenFile)
	}
	if err != nil {
		return err
	}
	return cluster.Work(ctx, cfg) // until ctx ends
}
