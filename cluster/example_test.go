package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
)

// A service computes ranks for a cluster in its own actor system. It must be the same executable as the coordinator's, as in
// examples/cluster-service.
func ExampleWork() {
	ctx := context.Background() // until it ends
	token, err := cluster.ReadTokenFile("worker.token")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = cluster.Work(ctx, cluster.WorkerConfig{
		Join:   "10.0.0.1:7070",
		Token:  token,
		System: actor.NewActorSystem(), // with the service's own actors
		Logger: slog.Default(),
	})
	fmt.Println(err)
}

// A service submits a run to a cluster and watches it. Events may go to an actor.
func ExampleClient_Follow() {
	ctx := context.Background()
	token, err := cluster.ReadTokenFile("operator.token")
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := cluster.NewClient(ctx, cluster.ClientConfig{Address: "10.0.0.1:7070", Token: token})
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := os.ReadFile("config.toml") // paths in it are the coordinator's
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := client.Submit(ctx, cluster.Submission{Config: text, File: "config.toml"})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := client.Follow(ctx, id, cluster.FollowOptions{Known: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	for event := range run.Events() {
		if e, ok := event.(troupe.StepEvent); ok && e.Loss != nil {
			fmt.Println(e.Step, *e.Loss)
		}
	}
	result, err := run.Wait()
	fmt.Println(result.Dir, err)
}
