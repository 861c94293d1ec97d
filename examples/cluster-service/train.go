package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
)

// train is a service that submits a run to a cluster and watches it with its own actor. When the
// service is told to stop, it stops the run with a checkpoint.
func train(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("cluster-service train", flag.ContinueOnError)
	cfg := cluster.ClientConfig{Name: "service"}
	flags.StringVar(&cfg.Address, "cluster", "127.0.0.1:7070", "the coordinator's host:port")
	tokenFile := flags.String("token-file", "operator.token", "file with an operator's token")
	err := flags.Parse(args)
	if err == nil && flags.NArg() != 1 {
		err = errors.New("name one config file: cluster-service train FILE")
	}
	if err == nil {
		cfg.Token, err = cluster.ReadTokenFile(*tokenFile)
	}
	if err != nil {
		return err
	}

	text, err := os.ReadFile(flags.Arg(0)) // paths in it are on the coordinator's host
	if err != nil {
		return err
	}
	client, err := cluster.NewClient(ctx, cfg)
	if err != nil {
		return err
	}
	id, err := client.Submit(ctx, cluster.Submission{Config: text, File: flags.Arg(0)})
	if err != nil {
		return err
	}

	// Following has a separate context, so that the service sees the run stop in order.
	run, err := client.Follow(context.Background(), id, cluster.FollowOptions{Known: true})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, run.Stop)()

	system := actor.NewActorSystem()
	defer system.Shutdown()
	watcher := system.Root.Spawn(actor.PropsFromFunc(watch))
	for event := range run.Events() {
		system.Root.Send(watcher, event)
	}
	if err := system.Root.PoisonFuture(watcher).Wait(); err != nil { // when it has handled all events
		return err
	}

	result, err := run.Wait()
	if err != nil {
		return err
	}
	fmt.Printf("run %s ended at step %d, checkpoint %s\n", id, result.Step, result.Dir)
	return nil
}

// watch is the actor that gets a run's events.
func watch(ctx actor.Context) {
	switch e := ctx.Message().(type) {
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
