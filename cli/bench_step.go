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
	"github.com/troupe-ml/troupe/telemetry/event"
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
		Long: `Measure whole training steps on random tokens: forward, backward, gradient clipping and the
update of the weights, by the same actors as in engine run. It writes no files.

The models are those of BENCHMARKS.md. --config takes sizes, batch and pipeline from a config
file, and --set overrides any key. Floating-point operations are the model's; a backward
counts as two forwards. Memory is the peak of the process, minus its memory before the
start; on a GPU also the GPU memory that it allocated.

With --on-request, each line of standard input is a number of steps to train. The program
answers when they are done and idles in between, so that a script can alternate between this
and another program. The first line of output describes the run, the last one its memory.`,
		Example: `  engine bench step --model gpt --threads 2
  engine bench step --model gpt --stages 2 --chunks 2 --microbatches 8
  printf '2\n5\n' | engine bench step --model gpt --on-request`,
		Args: takes(),
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			if o.onRequest {
				if err := idle(cmd, "with --on-request, which reads numbers of steps from standard input and answers in JSON", "seconds",
					"json"); err != nil {
					return err
				}
			}
			return measuring(cmd.Context(), func(ctx context.Context) error { return a.benchStep(ctx, cmd.InOrStdin(), o) })
		}),
	}
	o.benchFlags.add(cmd, 10, "steps, after their times are steady")
	o.benchModel.add(cmd)
	f := cmd.Flags()
	f.IntVar(&o.threads, "threads", 0, "`number` of CPU cores to use; 0: all")
	f.StringVar(&o.dtype, "dtype", "", "data `type` to compute in: float32 or bfloat16 (default: the config's)")
	f.IntVar(&o.stages, "stages", 0, "`number` of pipeline stages (default: the config's)")
	f.IntVar(&o.chunks, "chunks", 0, "`number` of chunks on each rank (default: the config's)")
	f.IntVar(&o.microbatches, "microbatches", 0, "`number` of microbatches per step (default: the config's)")
	f.StringVar(&o.schedule, "schedule", "", "`name` of the schedule (default: none for one stage, interleaved for several chunks, else 1f1b)")
	onRequestFlag(cmd, &o.onRequest, "a number of steps")
	completeWords(cmd, "dtype", "float32", "bfloat16")
	completeWords(cmd, "schedule", scheduler.Schedules()...)
	for _, name := range []string{"threads", "stages", "chunks", "microbatches"} {
		completeWords(cmd, name)
	}
	return cmd
}

// sets returns the flags as --set values.
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

// check rejects values that would silently mean the default.
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

// load resolves the config. The config has the size of a microbatch instead of their number.
func (o *stepFlags) load(sets []string) (*config.Config, error) {
	all := slices.Concat(o.sets(), sets)
	c, err := o.benchModel.load(all)
	if err != nil || o.microbatches == 0 {
		return c, err
	}
	if n := c.Batch.Sequences; n%o.microbatches != 0 {
		return nil, usagef("--microbatches %d: not a divisor of the step's %d sequences", o.microbatches, n)
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
		row("host", "%s ms of CPU time per step", round(r.HostCPUMS))
	}
	if r.DeviceTakenBytes > 0 {
		row("GPU", "%s allocated for tensors, %s of it in use at the peak", words.Bytes(r.DeviceTakenBytes), words.Bytes(r.DevicePeakBytes))
	}
	if r.PeakBytes == 0 {
		row("memory", "unavailable on this system")
		return
	}
	row("memory", "%s at the peak, in addition to %s before the start", words.Bytes(r.PeakBytes), words.Bytes(r.HeldBytes))
}

// stepsMax is the most steps in one request.
const stepsMax = 1_000_000

// answerSteps trains the number of steps in each input line.
func (a *app) answerSteps(ctx context.Context, in io.Reader, s *bench.Steps) error {
	say := func(name string, v any) error {
		text, err := event.Line(struct {
			Event string `json:"event"`
		}{name}, v)
		if err == nil {
			_, err = fmt.Fprintf(a.jsonOut(), "%s\n", text)
		}
		return err
	}
	if err := say("ready", s.Info()); err != nil {
		return err
	}
	err := requests(ctx, in, func(line string) error {
		n, err := strconv.Atoi(line)
		if err != nil || n < 1 || n > stepsMax {
			return usagef("standard input, line %q: give a number of steps, 1 to %d", line, stepsMax)
		}
		steps, took, err := s.Run(ctx, n)
		if err != nil {
			return err
		}
		return say("steps", struct {
			Steps int     `json:"steps"`
			MS    float64 `json:"ms"` // of all
		}{steps, took.Seconds() * 1000})
	})
	if err != nil {
		return err
	}
	return say("end", s.Memory())
}
