package prom_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/telemetry/prom"
)

// A service exports the metrics of its runs with its other pages.
func ExampleCollector() {
	metrics := prom.NewCollector()
	http.Handle("/metrics", metrics.Handler())

	train := func(ctx context.Context, cfg *config.Config) error {
		run, err := troupe.Start(ctx, cfg, troupe.Options{})
		if err != nil {
			return err
		}
		shown, err := metrics.Add(cfg.Run.Name, run)
		if err != nil {
			fmt.Println(err) // a run of that name is active
		}
		events := run.Subscribe()
		for e := range events.Events() { // until the run ends
			shown.Observe(e)
		}
		result, err := run.Wait()
		shown.End(result, err)
		return err
	}
	_ = train
}
