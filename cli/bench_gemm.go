package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/internal/bench"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// gemmFlags are the flags of `engine bench gemm`.
type gemmFlags struct {
	benchFlags
	threads       []int
	shapes, forms []string
	dtype         string
	onRequest     bool
}

func (a *app) newBenchGEMM() *cobra.Command {
	var o gemmFlags
	cmd := &cobra.Command{
		Use:   "gemm",
		Short: "Measure matrix products",
		Long: `Measure matrix products C = A × B, where C has M × N elements and the sum is over K. In the
form nt, B is stored transposed; in tn, A is. GPT-2 uses nn for outputs, nt for input
gradients and tn for weight gradients; Llama uses nt, nn and tn.`,
		Example: `  engine bench gemm
  engine bench gemm --shapes 256x768x768,1024x1024x1024 --forms nn --threads 1 --seconds 2
  echo 256x768x768 nn | engine bench gemm --threads 1 --on-request`,
		Args: takes(),
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			if o.onRequest {
				if err := idle(cmd, "with --on-request, which reads products from standard input and answers in JSON", "shapes", "forms",
					"json"); err != nil {
					return err
				}
			}
			return measuring(cmd.Context(), func(ctx context.Context) error { return a.benchGEMM(ctx, cmd.InOrStdin(), o) })
		}),
	}
	o.add(cmd, 0.5, "each product")
	f := cmd.Flags()
	f.IntSliceVar(&o.threads, "threads", nil, "`numbers` of CPU cores to use (default: 1 and all)")
	f.StringSliceVar(&o.shapes, "shapes", nil, "`sizes` as MxNxK (default: those of GPT-2's layers and head, and squares)")
	f.StringSliceVar(&o.forms, "forms", bench.Forms(), "`forms` of the product")
	f.StringVar(&o.dtype, "dtype", "float32", "`type` of the matrices: float32 or bfloat16")
	onRequestFlag(cmd, &o.onRequest, `such as "256x768x768 nn"`)
	completeWords(cmd, "threads")
	completeWords(cmd, "shapes")
	completeWords(cmd, "forms", bench.Forms()...)
	completeWords(cmd, "dtype", bench.DTypes()...)
	return cmd
}

func (a *app) benchGEMM(ctx context.Context, in io.Reader, o gemmFlags) error {
	if err := o.check(); err != nil {
		return err
	}
	if !slices.Contains(bench.DTypes(), o.dtype) {
		return usagef("--dtype %q: give %s", o.dtype, strings.Join(bench.DTypes(), " or "))
	}
	threads, err := threadCounts(o.threads)
	if err != nil {
		return err
	}
	if o.onRequest {
		if len(o.threads) != 1 {
			return usagef("--on-request needs --threads with one number, so that answers are unambiguous")
		}
		return a.answerGEMM(ctx, in, o)
	}
	shapes, err := parseShapes(o.shapes)
	if err != nil {
		return err
	}
	for _, form := range o.forms {
		if err := bench.CheckForm(form); err != nil {
			return err
		}
	}
	for i, n := range threads {
		if err := a.gemmRows(ctx, o, n, shapes, i == 0); err != nil {
			return err
		}
	}
	return nil
}

// gemmRows measures with one number of threads. With head it prints the table's heading first.
func (a *app) gemmRows(ctx context.Context, o gemmFlags, threads int, shapes []bench.Shape, head bool) error {
	p, err := bench.NewProducts(cpu.Options{Threads: threads, Kernels: o.kernels}, o.dtype)
	if err != nil {
		return err
	}
	defer p.Close()
	if head && !o.json {
		a.printf(gemmLine, "M×N×K", "form", "threads", "ms", "GFLOP/s", "10–90 %")
	}
	for _, s := range shapes {
		for _, form := range o.forms {
			r, err := p.Measure(ctx, s, form, o.seconds)
			if err != nil {
				return err
			}
			if err := a.gemmRow(r, o.json); err != nil {
				return err
			}
		}
	}
	return nil
}

// gemmLine is the format of a table line.
const gemmLine = "%-16s %-4s %7v %10s %10s   %s\n"

func (a *app) gemmRow(r bench.ProductResult, asJSON bool) error {
	if asJSON {
		return a.json(r)
	}
	a.printf(gemmLine, strings.ReplaceAll(r.Shape, "x", "×"), r.Form, r.Threads, round(r.MS.Median), round(r.GFLOPS.Median), spread(r.GFLOPS))
	return nil
}

// answerGEMM measures the product that each input line names.
func (a *app) answerGEMM(ctx context.Context, in io.Reader, o gemmFlags) error {
	p, err := bench.NewProducts(cpu.Options{Threads: o.threads[0], Kernels: o.kernels}, o.dtype)
	if err != nil {
		return err
	}
	defer p.Close()
	return requests(ctx, in, func(line string) error {
		words := strings.Fields(line)
		if len(words) != 2 {
			return fmt.Errorf(`%w: the line %q; give a shape and a form, as in "256x768x768 nn"`, bench.ErrInput, line)
		}
		s, err := bench.ParseShape(words[0])
		if err != nil {
			return err
		}
		r, err := p.Measure(ctx, s, words[1], o.seconds)
		if err != nil {
			return err
		}
		return a.json(r)
	})
}

func parseShapes(given []string) ([]bench.Shape, error) {
	if len(given) == 0 {
		return bench.DefaultShapes(), nil
	}
	var shapes []bench.Shape
	for _, text := range given {
		s, err := bench.ParseShape(text)
		if err != nil {
			return nil, err
		}
		shapes = append(shapes, s)
	}
	return shapes, nil
}
