package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/internal/bench"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// opsFlags are the flags of `engine bench ops`.
type opsFlags struct {
	benchFlags
	benchModel
	threads []int
}

func (a *app) newBenchOps() *cobra.Command {
	var o opsFlags
	cmd := &cobra.Command{
		Use:   "ops",
		Short: "Measure the operations of a model's layers",
		Long: `Measure, one by one, the operations of a model's embedding, of one decoder layer
and of its head, at the sizes of a step. Where arithmetic bounds an operation its
rate is in GFLOP/s; elsewhere in GB/s, and compared with a plain copy that moves
as many bytes, in turn with it: at 100 % it is as fast as the copy.`,
		Example: `  engine bench ops
  engine bench ops --model llama --sequences 1 --threads 1`,
		Args: takes(),
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			return measuring(cmd.Context(), func(ctx context.Context) error { return a.benchOps(ctx, o) })
		}),
	}
	o.benchFlags.add(cmd, 0.2, "each operation, in seconds")
	o.benchModel.add(cmd)
	cmd.Flags().IntSliceVar(&o.threads, "threads", nil, "`numbers` of cores to use (default: 1 and all)")
	completeWords(cmd, "threads")
	return cmd
}

func (a *app) benchOps(ctx context.Context, o opsFlags) error {
	if err := errors.Join(o.check(), o.checkModel()); err != nil {
		return err
	}
	threads, err := threadCounts(o.threads)
	if err != nil {
		return err
	}
	head := !o.json
	for _, n := range threads {
		err := bench.Ops(ctx, cpu.Options{Threads: n, Kernels: o.kernels}, o.load, o.seconds, func(r bench.OpResult) error {
			if o.json {
				return a.json(r)
			}
			if head {
				a.printf(opLine, "operation", "size", "threads", "ms", "10–90 %", "rate", "of copy")
				head = false
			}
			a.opRow(r)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// opLine is a line of the table.
const opLine = "%-28s %-18s %7v %9s %15s %15s %7s\n"

func (a *app) opRow(r bench.OpResult) {
	var rate, ofCopy string
	if r.GFLOPS != nil {
		rate = round(r.GFLOPS.Median) + " GFLOP/s"
	} else {
		rate, ofCopy = round(r.GBPerS.Median)+" GB/s", fmt.Sprintf("%.0f %%", 100**r.OfCopy)
	}
	a.printf(opLine, r.Op, r.Size, r.Threads, round(r.MS.Median), spread(r.MS), rate, ofCopy)
}
