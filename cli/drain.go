package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/base/words"
)

// drainEvery is how often engine drain asks whether the worker still has ranks.
const drainEvery = 200 * time.Millisecond

func (a *app) newDrain() *cobra.Command {
	var o clientFlags
	var noWait bool
	cmd := &cobra.Command{
		Use:   "drain WORKER",
		Short: "Move a worker's ranks to other workers",
		Long: `Move the ranks of a worker to other workers, before it is stopped or its host is taken down.
The worker gets no more ranks. The command waits until it has none.

Where another worker is free and a third one has the state of the ranks (replicas, or
cluster.shadow), the other worker takes them when the current step has ended. Otherwise the
run writes a checkpoint after the current step and continues from it on the other workers.
No step is repeated in either case.

The worker stays in the cluster until it stops. One that joins again under its name gets
ranks again. SIGTERM to a worker does the same, and ends the worker within its --grace.

See also: engine status (lists the workers), engine cluster release.`,
		Example: `  engine drain rack1-node3
  engine drain rack1-node3 --cluster head:7070 --no-wait`,
		Args: takes("WORKER"),
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, err := o.connect(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			if err := c.Drain(ctx, args[0]); err != nil {
				return err
			}
			if noWait {
				a.printf("%s gets no more ranks\n", args[0])
				return nil
			}
			return a.awaitDrained(ctx, c, args[0])
		}),
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until the worker has no ranks")
	o.set(cmd)
	return cmd
}

// awaitDrained waits until a worker has no ranks, and keeps no state of ranks for the others.
func (a *app) awaitDrained(ctx context.Context, c *cluster.Client, name string) error {
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for said := false; ; said = true {
		all, _, err := c.Members(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(m cluster.ClusterMember) bool { return m.Name == name })
		switch {
		case i < 0:
			a.printf("%s has left\n", name)
			return nil
		case len(all[i].Ranks) == 0 && all[i].RunID == "":
			a.printf("%s has no ranks\n", name)
			return nil
		case !said && len(all[i].Ranks) > 0:
			say(a.err, "%s has ranks %s; waiting until others have them", name, words.Numbers(all[i].Ranks))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
