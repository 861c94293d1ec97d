package cli

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/plan"
)

// planCluster prints which worker of a cluster would compute which stage of a config, and the predicted time
// of a step.
func (a *app) planCluster(ctx context.Context, cmd *cobra.Command, path string, o *planConfigOptions, d drawing) error {
	for _, name := range []string{"devices", "memory-gib", "latency-us", "bandwidth-gbps", "devices-per-node", "node-bandwidth-gbps",
		"node-latency-us", "expert-imbalance", "check", "pairs", "device", "layer-costs", "save-costs", "out"} {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed {
			return usagef("--%s has no effect with --cluster, which measures the workers' devices, memory and links; remove it", name)
		}
	}
	if d.format != "ascii" && d.format != "json" {
		return usagef("--format %s: --cluster supports only ascii and json", d.format)
	}
	if !(o.seconds > 0 && o.seconds <= 60) {
		return usagef("--seconds %v: give more than 0, up to 60", o.seconds)
	}
	text, err := readConfig(path)
	if err != nil {
		return err
	}
	a.working = true
	c, err := o.client.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	say(a.err, "measuring the links between the workers, and the layers on each of them")
	f, err := c.Forecast(ctx, text, path, o.sets, o.seconds)
	if err != nil {
		return err
	}
	if d.format == "json" {
		return a.json(f)
	}
	return a.showForecast(f)
}

func (a *app) showForecast(f *cluster.Forecast) error {
	w := tabwriter.NewWriter(a.people(), 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(w, "RANK\tWORKER\tHOST\tCORES\tDEVICE\tNEEDS\tMEMORY")
	for _, r := range f.Ranks {
		on := "cpu"
		if r.Device != "" {
			on = words.OneLine(r.Device)
		}
		_, e := fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\t%s\n", r.Rank, words.OneLine(r.Worker), words.OneLine(r.Host), r.Cores, on,
			plan.GiB(float64(r.Bytes)), plan.GiB(float64(r.MemoryBytes)))
		err = errors.Join(err, e)
	}
	if len(f.Links) > 0 {
		_, e := fmt.Fprintln(w, "\nFROM\tTO\tLATENCY\tGBIT/S")
		err = errors.Join(err, e)
	}
	for _, l := range f.Links {
		_, e := fmt.Fprintf(w, "%s\t%s\t%.3f ms\t%.2f\n", words.OneLine(l.From), words.OneLine(l.To), l.LatencyMS, 8*l.BytesPerS/1e9)
		err = errors.Join(err, e)
	}
	err = errors.Join(err, w.Flush())
	a.printf("\npredicted step: %.1f ms, %s tokens/s, bubble %.1f%%, %.2f ms for a message between neighboring stages\n", f.StepMS,
		words.Short(f.TokensPerS), f.BubblePct, f.MessageMS)
	if f.Apart != "" {
		a.printf("%s\n", words.OneLine(f.Apart))
	}
	a.printf("all workers measured the layers at the same time; the prediction assumes that ranks on the same worker do not share cores\n")
	return err
}
