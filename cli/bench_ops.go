package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/bench"
)

// opsFlags are the flags of `engine bench ops`.
type opsFlags struct {
	benchFlags
	benchModel
	threads       []int
	device, dtype string
}

func (a *app) newBenchOps() *cobra.Command {
	var o opsFlags
	cmd := &cobra.Command{
		Use:   "ops",
		Short: "Measure the operations of a model's layers",
		Long: `Measure, one by one, the operations of a model's embedding, of one decoder layer and of its
head, at the sizes of a training step. Operations bound by arithmetic have their rate in
GFLOP/s. The others have it in GB/s, and relative to a plain copy of as many bytes,
measured in turn: 100 % is as fast as the copy.

Each measurement repeats an operation long enough that the time to start it does not count;
on a GPU starting takes longer than many kernels.`,
		Example: `  engine bench ops
  engine bench ops --model llama --sequences 1 --threads 1
  engine bench ops --device cuda --dtype bfloat16 --set model.context=1024`,
		Args: takes(),
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			return measuring(cmd.Context(), func(ctx context.Context) error { return a.benchOps(ctx, o) })
		}),
	}
	o.benchFlags.add(cmd, 0.2, "each operation")
	o.benchModel.add(cmd)
	f := cmd.Flags()
	f.IntSliceVar(&o.threads, "threads", nil, "`numbers` of CPU cores to use (default: 1 and all)")
	f.StringVar(&o.device, "device", "",
		"`device` to compute on: cpu, cuda, or one GPU by its number, such as cuda:1 (default: the config's)")
	f.StringVar(&o.dtype, "dtype", "", "data `type` of matrix products: float32 or bfloat16 (default: the config's)")
	completeWords(cmd, "threads")
	completeWords(cmd, "device", "cpu", "cuda")
	completeWords(cmd, "dtype", bench.DTypes()...)
	return cmd
}

func (a *app) benchOps(ctx context.Context, o opsFlags) error {
	if err := errors.Join(o.check(), o.checkModel()); err != nil {
		return err
	}
	threads, err := o.threadCounts()
	if err != nil {
		return err
	}
	head := !o.json
	for _, n := range threads {
		load := func(sets []string) (*config.Config, error) {
			return o.load(slices.Concat(sets, o.sets(), []string{fmt.Sprintf("device.threads=%d", n)}))
		}
		err := bench.Ops(ctx, load, o.seconds, func(r bench.OpResult) error {
			if o.json {
				return a.json(r)
			}
			if head {
				a.printf(opLine, "operation", "size", "type", "threads", "ms", "10–90 %", "rate", "of copy")
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

// sets returns the flags as --set values.
func (o *opsFlags) sets() []string {
	sets := []string{"device.kernels=" + o.kernels}
	if o.device != "" {
		sets = append(sets, "device.kind="+o.device)
	}
	if o.dtype != "" {
		sets = append(sets, "device.dtype="+o.dtype)
	}
	return sets
}

// threadCounts returns the numbers of cores to measure with; 0 for a GPU.
func (o *opsFlags) threadCounts() ([]int, error) {
	c, err := o.load(slices.Concat(bench.SizesOnly, o.sets()))
	if err != nil {
		return nil, err
	}
	if c.Device.KindOf(0) == "cuda" && len(o.threads) == 0 {
		return []int{0}, nil
	}
	return threadCounts(o.threads)
}

// check rejects invalid devices and types.
func (o *opsFlags) check() error {
	kind, _ := config.SplitDevice(o.device)
	switch {
	case !slices.Contains([]string{"", "cpu", "cuda"}, kind):
		return usagef("--device %q: give cpu, cuda, or one GPU by its number, such as cuda:1", o.device)
	case o.dtype != "" && !slices.Contains(bench.DTypes(), o.dtype):
		return usagef("--dtype %q: give %s", o.dtype, strings.Join(bench.DTypes(), " or "))
	}
	return o.benchFlags.check()
}

// opLine is the format of a table line.
const opLine = "%-31s %-19s %-8s %7v %9s %15s %15s %7s\n"

func (a *app) opRow(r bench.OpResult) {
	var rate, ofCopy string
	if r.GFLOPS != nil {
		rate = round(r.GFLOPS.Median) + " GFLOP/s"
	} else {
		rate, ofCopy = round(r.GBPerS.Median)+" GB/s", fmt.Sprintf("%.0f %%", 100**r.OfCopy)
	}
	a.printf(opLine, r.Op, r.Size, r.DType, r.Threads, round(r.MS.Median), spread(r.MS), rate, ofCopy)
}
