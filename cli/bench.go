package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/internal/bench"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// newBench is for developers of the kernels: engine --help does not list it.
func (a *app) newBench() *cobra.Command {
	cmd := &cobra.Command{
		Hidden: true,
		Use:    "bench",
		Short:  "Measure how fast this machine computes",
		Long: `Measure how fast this machine computes matrix products, the operations of a layer, or whole
training steps, with the same code as in training. Times and rates are medians, with the
10th and the 90th percentile. A GFLOP is 10⁹ floating-point operations; a multiply-add
counts as two. A GB is 10⁹ bytes.`,
	}
	cmd.AddCommand(a.newBenchGEMM(), a.newBenchOps(), a.newBenchStep())
	asGroup(cmd)
	return cmd
}

// benchFlags are the flags that all measurements share.
type benchFlags struct {
	seconds float64
	kernels string
	json    bool
}

func (o *benchFlags) add(cmd *cobra.Command, seconds float64, what string) {
	f := cmd.Flags()
	f.Float64Var(&o.seconds, "seconds", seconds, "time to spend on "+what+", in `seconds`")
	f.StringVar(&o.kernels, "kernels", "auto", "CPU kernels to use: auto, or a `name` that engine doctor lists")
	f.BoolVar(&o.json, "json", false, "print one JSON object per line")
	completeWords(cmd, "seconds")
	completeWords(cmd, "kernels", append([]string{"auto"}, cpu.Paths()...)...)
}

// secondsMax keeps a typing error from running for days.
const secondsMax = 3600

func (o *benchFlags) check() error {
	if !(o.seconds > 0) || o.seconds > secondsMax {
		return usagef("--seconds %g: give more than 0, up to %d", o.seconds, secondsMax)
	}
	return nil
}

// onRequestFlag adds --on-request to a command.
func onRequestFlag(cmd *cobra.Command, on *bool, line string) {
	cmd.Flags().BoolVar(on, "on-request", false, "measure once per line of standard input ("+line+
		"), and answer each with a line of JSON")
}

// measuring calls f with a context that a signal cancels, so that f can clean up, for example remove a
// folder.
func measuring(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := f(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		return errStopped
	case errors.Is(err, bench.ErrInput):
		return &usageError{err}
	}
	return err
}

// requests calls answer for each line of the input, until it ends.
func requests(ctx context.Context, in io.Reader, answer func(line string) error) error {
	lines, failed := make(chan string), make(chan error, 1)
	go func() { // ends with the input, or with the program
		defer close(lines)
		s := bufio.NewScanner(in)
		for s.Scan() {
			select {
			case lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
		failed <- s.Err()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case line, ok := <-lines:
			if !ok {
				return <-failed
			}
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			if err := answer(line); err != nil {
				return err
			}
		}
	}
}

// threadCounts returns the numbers of threads to measure with: by default one and all.
func threadCounts(given []int) ([]int, error) {
	if len(given) == 0 {
		return slices.Compact([]int{1, runtime.GOMAXPROCS(0)}), nil
	}
	for _, n := range given {
		if n < 1 || n > threadsMax {
			return nil, usagef("--threads %d: give 1 to %d", n, threadsMax)
		}
	}
	return given, nil
}

// threadsMax is more than any machine has.
const threadsMax = 4096

// spread formats the 10th and the 90th percentile.
func spread(s bench.Summary) string {
	return round(s.P10) + "–" + round(s.P90)
}

// round formats a number with three digits, or more if it has more before the decimal point.
func round(x float64) string {
	decimals := 6
	for limit := 0.0009995; decimals > 0 && math.Abs(x) >= limit; limit *= 10 {
		decimals--
	}
	return strconv.FormatFloat(x, 'f', decimals, 64)
}
