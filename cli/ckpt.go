package cli

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/base/words"
)

func (a *app) newCkpt() *cobra.Command {
	cmd := &cobra.Command{Use: "ckpt", Short: "List or verify checkpoints"}
	cmd.AddCommand(a.newCkptLs(), a.newCkptVerify())
	asGroup(cmd)
	return cmd
}

func (a *app) newCkptLs() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls DIR",
		Short: "List the checkpoints of a run",
		Long: `List the checkpoints in a run's output folder: their size, the best validation
loss so far and its step, when they were written, and which are the last and the
best. FILES says whether all files are there in their full length, and if not:

  DAMAGED     a file is proven to be wrong; a run sets the checkpoint aside
  MISSING     a file is not there: restore it
  UNREADABLE  a file can't be read at the moment, or is a link: make it readable
  TOO NEW     a newer program wrote it: use that one

engine ckpt verify reads all of every file. With --json there are also the sizes and
the SHA-256 of the data that the run was trained and validated on, and what
--from-step and --accept-new-data decided.`,
		Example:           `  engine ckpt ls runs/run`,
		Args:              takes("DIR"),
		ValidArgsFunction: completeFolders,
		RunE: a.work(func(_ *cobra.Command, args []string) error {
			list, err := listCheckpoints(args[0])
			if err != nil {
				return &troupe.SetupError{Err: err}
			}
			if asJSON {
				return a.json(list)
			}
			w := tabwriter.NewWriter(a.people(), 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "STEP\tSIZE\tBEST VAL LOSS\tWRITTEN\tMARKS\tFILES")
			for _, c := range list {
				best := "-"
				if c.BestValLoss != nil {
					best = fmt.Sprintf("%.4f at %d", *c.BestValLoss, c.BestStep)
				}
				written := "-"
				if !c.Written.IsZero() {
					written = c.Written.Local().Format(time.DateTime)
				}
				_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", c.Step, words.Bytes(c.Bytes), best, written, c.marks(), c.files())
			}
			return w.Flush()
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) newCkptVerify() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Read checkpoints and compare every byte with their checksums",
		Long: `Read a checkpoint, or all checkpoints in a run's output folder, and compare every
byte with the checksums that were written with it. The exit status is 1 when one
is not intact; see engine ckpt ls --help for what it can be instead.`,
		Example: `  engine ckpt verify runs/run
  engine ckpt verify runs/run/checkpoints/step-00000100`,
		Args:              takes("DIR"),
		ValidArgsFunction: completeFolders,
		RunE: a.work(func(_ *cobra.Command, args []string) error {
			return a.verify(args[0], asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object a line")
	return cmd
}

// verify reports on the checkpoints of a run's folder, or on the one that a path is,
// and returns an error unless all are intact.
func (a *app) verify(path string, asJSON bool) error {
	all, bad := 0, 0
	show := func(report *checkpoint.Report, err error) error {
		if err != nil {
			return err
		}
		all++
		if !report.Intact() {
			bad++
		}
		if asJSON {
			return a.json(verifyJSON(report))
		}
		a.printf("%s", report)
		return nil
	}
	err := withStore(path, func(s *checkpoint.Store, steps []int) error {
		for _, step := range steps {
			report, err := s.Verify(step)
			if errors.Is(err, checkpoint.ErrNone) {
				continue // a run that goes on has removed it
			}
			if err := show(report, err); err != nil {
				return err
			}
		}
		return nil
	})
	if all == 0 && (err == nil || errors.Is(err, checkpoint.ErrNone)) {
		err = show(checkpoint.VerifyAt(path))
	}
	switch {
	case err != nil && all == 0:
		return &troupe.SetupError{Err: err}
	case err != nil:
		return err
	case bad > 0:
		return fmt.Errorf("%d of %s not intact", bad, words.Plural(all, "checkpoint"))
	}
	return nil
}

type problemJSON struct {
	File    string                 `json:"file"`
	Kind    checkpoint.ProblemKind `json:"kind"`
	Detail  string                 `json:"detail"`
	Warning bool                   `json:"warning"` // the checkpoint is intact nevertheless
}

type reportJSON struct {
	Dir      string        `json:"dir"`
	Intact   bool          `json:"intact"`
	State    string        `json:"state"`
	Step     *int          `json:"step"` // null: unknown
	Problems []problemJSON `json:"problems"`
}

func verifyJSON(r *checkpoint.Report) reportJSON {
	j := reportJSON{Dir: r.Dir, Intact: r.Intact(), State: string(r.State()), Problems: []problemJSON{}}
	if r.Manifest != nil {
		j.Step = &r.Manifest.Step
	}
	for _, p := range r.Problems {
		j.Problems = append(j.Problems, problemJSON{p.File, p.Kind, p.Detail, p.Warning()})
	}
	return j
}

// marks says what points to the checkpoint.
func (c listed) marks() string {
	var marks []string
	if c.Last {
		marks = append(marks, "last")
	}
	if c.Best {
		marks = append(marks, "best")
	}
	if marks == nil {
		return "-"
	}
	return strings.Join(marks, ", ")
}

// files says whether all of them are there. The problem names files, which may be
// called anything; it has to stay on its line.
func (c listed) files() string {
	if c.Problem == "" {
		return c.State
	}
	return strings.ToUpper(c.State) + ": " + strings.Join(strings.Fields(words.Harmless(c.Problem)), " ")
}
