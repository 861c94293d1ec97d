package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/bench"
	"github.com/troupe-ml/troupe/scheduler"
)

// stepFlags are the flags of `engine bench step`.
type stepFlags struct {
	benchFlags
	benchModel
	threads, stages, chunks, microbatches int
	schedule, dtype                       string
	onRequest                             bool
}

func (a *app) newBenchStep() *cobra.Command {
	var o stepFlags
	cmd := &cobra.Command{
		Use:   "step",
		Short: "Measure whole training steps",
		Long: `Measure whole training steps on random tokens: forward, backward, clipping, the
update of the weights, by the actors that engine run trains with. Nothing is kept.

The models are those that BENCHMARKS.md measures; --config takes the sizes, batch
and pipeline from a file, and any key can be set with --set. The arithmetic is
that of the model, a backward pass counted as two forward passes. The memory is
the most that the process held, less what it held before it began; on a GPU there is
also what it took of the GPU's.

With --on-request the program trains when a line on the standard input holds a
number of steps, answers when they are done, and holds still in between, so that a
script can compare it with another program in one run. The first line of output
describes the run, the last one its memory.`,
		Example: `  engine bench step --model gpt --threads 2
  engine bench step --model gpt --stages 2 --chunks 2 --microbatches 8
  printf '2\n5\n' | engine bench step --model gpt --on-request`,
		Args: takes(),
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			if o.onRequest {
				if err := idle(cmd, "with --on-request, where the input counts steps and answers are JSON", "seconds", "json"); err != nil {
					return err
				}
			}
			return measuring(cmd.Context(), func(ctx context.Context) error { return a.benchStep(ctx, cmd.InOrStdin(), o) })
		}),
	}
	o.benchFlags.add(cmd, 10, "steps, in seconds, once they go evenly")
	o.benchModel.add(cmd)
	f := cmd.Flags()
	f.IntVar(&o.threads, "threads", 0, "`number` of cores to use; 0: all")
	f.StringVar(&o.dtype, "dtype", "", "`type` to compute in (default: the configuration's)")
	f.IntVar(&o.stages, "stages", 0, "`number` of stages (default: the configuration's)")
	f.IntVar(&o.chunks, "chunks", 0, "`number` of chunks in a stage (default: the configuration's)")
	f.IntVar(&o.microbatches, "microbatches", 0, "`number` of microbatches in a step (default: the configuration's)")
	f.StringVar(&o.schedule, "schedule", "", "`name` of the schedule (default: by stages and chunks)")
	onRequestFlag(cmd, &o.onRequest, "a number of steps")
	completeWords(cmd, "dtype", "float32", "bfloat16")
	completeWords(cmd, "schedule", scheduler.Schedules()...)
	for _, name := range []string{"threads", "stages", "chunks", "microbatches"} {
		completeWords(cmd, name)
	}
	return cmd
}

// sets are the keys that the flags stand for.
func (o *stepFlags) sets() []string {
	var sets []string
	for _, key := range []struct {
		name  string
		value int
	}{{"device.threads", o.threads}, {"pipeline.stages", o.stages}, {"pipeline.chunks", o.chunks}} {
		if key.value > 0 {
			sets = append(sets, fmt.Sprintf("%s=%d", key.name, key.value))
		}
	}
	for _, key := range []struct{ name, value string }{{"device.dtype", o.dtype}, {"pipeline.schedule", o.schedule},
		{"device.kernels", o.kernels}} {
		if key.value != "" {
			sets = append(sets, key.name+"="+key.value)
		}
	}
	return sets
}

// check refuses what would silently mean the default.
func (o *stepFlags) check() error {
	for _, f := range []struct {
		name  string
		value int
	}{{"threads", o.threads}, {"stages", o.stages}, {"chunks", o.chunks}, {"microbatches", o.microbatches}} {
		if f.value < 0 {
			return usagef("--%s %d: give 1 or more", f.name, f.value)
		}
	}
	return errors.Join(o.benchFlags.check(), o.checkModel())
}

// load resolves the configuration. The number of microbatches is given to it as
// the size of one.
func (o *stepFlags) load(sets []string) (*config.Config, error) {
	all := slices.Concat(o.sets(), sets)
	c, err := o.benchModel.load(all)
	if err != nil || o.microbatches == 0 {
		return c, err
	}
	if n := c.Batch.Sequences; n%o.microbatches != 0 {
		return nil, usagef("--microbatches %d: the step has %d sequences, which don't divide by that", o.microbatches, n)
	}
	return o.benchModel.load(append(all, fmt.Sprintf("batch.microbatch=%d", c.Batch.Sequences/o.microbatches)))
}

func (a *app) benchStep(ctx context.Context, in io.Reader, o stepFlags) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	s, err := bench.StartSteps(ctx, o.load)
	if err != nil {
		return err
	}
	defer func() {
		if closing := s.Close(); err == nil {
			err = closing
		}
	}()
	if o.onRequest {
		return a.answerSteps(ctx, in, s)
	}
	r, err := s.Measure(ctx, o.seconds)
	if err != nil {
		return err
	}
	if o.json {
		return a.json(r)
	}
	a.stepReport(r)
	return nil
}

func (a *app) stepReport(r bench.StepsResult) {
	row := func(name, format string, args ...any) { a.printf("%-8s %s\n", name, fmt.Sprintf(format, args...)) }
	row("model", "%s: %s, %s of width %d, %s parameters, vocabulary of %s", r.Model, r.Family, words.Plural(r.Layers, "layer"), r.Hidden,
		words.Count(r.Parameters), words.Count(int64(r.Vocab)))
	row("batch", "%s of %d tokens in %s", words.Plural(r.Sequences, "sequence"), r.Context, words.Plural(r.Microbatches, "microbatch"))
	row("pipeline", "schedule %s: %s × %s", r.Schedule, words.Plural(r.Stages, "stage"), words.Plural(r.Chunks, "chunk"))
	row("device", "%s, %s kernels, %s", r.DType, r.Kernels, words.Plural(r.Threads, "thread"))
	row("step", "%s ms (%s, 10–90 %% of %s)", round(r.MS.Median), spread(r.MS), words.Plural(r.MS.Samples, "sample"))
	row("speed", "%s tokens/s (%s)", round(r.TokensPerS.Median), spread(r.TokensPerS))
	row("compute", "%s GFLOP/s (%s)", round(r.GFLOPS.Median), spread(r.GFLOPS))
	if r.HostCPUMS > 0 {
		row("host", "%s ms of a step on cores", round(r.HostCPUMS))
	}
	if r.DeviceTakenBytes > 0 {
		row("GPU", "%s taken for tensors, %s of it in use at the peak", words.Bytes(r.DeviceTakenBytes), words.Bytes(r.DevicePeakBytes))
	}
	if r.PeakBytes == 0 {
		row("memory", "unavailable on this system")
		return
	}
	row("memory", "%s at the peak, beyond the %s held before", words.Bytes(r.PeakBytes), words.Bytes(r.HeldBytes))
}

// stepsMax bounds the steps of one request.
const stepsMax = 1_000_000

// answerSteps trains for lines of the input.
func (a *app) answerSteps(ctx context.Context, in io.Reader, s *bench.Steps) error {
	say := jsonReporter{app: a}
	say.emit("ready", s.Info())
	err := requests(ctx, in, func(line string) error {
		n, err := strconv.Atoi(line)
		if err != nil || n < 1 || n > stepsMax {
			return usagef("the line %q on the standard input: give a number of steps, 1 to %d", line, stepsMax)
		}
		steps, took, err := s.Run(ctx, n)
		if err != nil {
			return err
		}
		say.emit("steps", struct {
			Steps int     `json:"steps"`
			MS    float64 `json:"ms"` // of all
		}{steps, took.Seconds() * 1000})
		return nil
	})
	if err != nil {
		return err
	}
	say.emit("end", s.Memory())
	return nil
}
