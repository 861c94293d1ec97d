package prom_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/telemetry/prom"
)

// A service shows its runs beside what else it serves.
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
			fmt.Println(err) // one of that name goes on
		}
		events := run.Subscribe()
		for e := range events.Events() { // until the run has ended
			shown.Observe(e)
		}
		result, err := run.Wait()
		shown.End(result, err)
		return err
	}
	_ = train
}
