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
	"github.com/troupe-ml/troupe/internal/host/folder"
)

func (a *app) newCkpt() *cobra.Command {
	cmd := &cobra.Command{Use: "ckpt", Short: "List and verify checkpoints",
		Long: `List the checkpoints of a run, or verify their checksums. To resume from an older checkpoint,
use engine run --from-step.`}
	cmd.AddCommand(a.newCkptLs(), a.newCkptVerify())
	asGroup(cmd)
	return cmd
}

func (a *app) newCkptLs() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls DIR",
		Short: "List the checkpoints of a run",
		Long: `List the checkpoints in a run's output folder: step, size, the best validation loss so far
and its step, the time of writing, and which checkpoints are the last and the best. FILES is
"complete" if all files have their full length, otherwise:

  DAMAGED     A file has wrong content. A run renames the checkpoint to ….damaged.
  MISSING     A file does not exist. Restore it.
  UNREADABLE  A file can't be read at the moment, or is a link. Make it readable.
  TOO NEW     A newer version of engine wrote it. Use that version.

The JSON also has the sizes and SHA-256 of the training and validation data, and the
decisions made with --from-step and --accept-new-data.

See also: engine ckpt verify (reads every byte), engine run --from-step.`,
		Example: `  engine ckpt ls runs/run
  engine ckpt ls runs/run --json`,
		Args:              takes("DIR"),
		ValidArgsFunction: completeFolders,
		RunE: a.work(func(_ *cobra.Command, args []string) error {
			list, err := listCheckpoints(args[0])
			if err != nil {
				return &troupe.SetupError{Err: folder.Missing(err, "DIR", "folder", args[0])}
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
		Short: "Verify the checksums of checkpoints",
		Long: `Verify a checkpoint, or all checkpoints in a run's output folder: read every byte and compare
it with the checksums that were written with it. The exit status is 1 if a checkpoint is
not intact. engine ckpt ls --help explains what can be wrong.

See also: engine ckpt ls.`,
		Example: `  engine ckpt verify runs/run
  engine ckpt verify runs/run/checkpoints/step-00000100`,
		Args:              takes("DIR"),
		ValidArgsFunction: completeFolders,
		RunE: a.work(func(_ *cobra.Command, args []string) error {
			return a.verify(args[0], asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

// verify reports on all checkpoints in a run's folder, or on one checkpoint. It returns an error unless all are
// intact.
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
				continue // the run in progress has removed it
			}
			if err := show(report, err); err != nil {
				return err
			}
		}
		best, err := s.BestSteps()
		if err != nil {
			return err
		}
		for _, step := range best {
			report, err := s.VerifyBest(step)
			if errors.Is(err, checkpoint.ErrNone) {
				continue
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
		return &troupe.SetupError{Err: folder.Missing(err, "DIR", "folder", path)}
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
	Warning bool                   `json:"warning"` // the checkpoint is intact all the same
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

// marks says whether the checkpoint is the last or the best.
func (c listed) marks() string {
	var marks []string
	if c.Last {
		marks = append(marks, "last")
	}
	switch {
	case c.Weights:
		marks = append(marks, "best, weights only")
	case c.Best:
		marks = append(marks, "best")
	}
	if marks == nil {
		return "-"
	}
	return strings.Join(marks, ", ")
}

// files says whether all files are complete, or what is wrong. File names in it can have any characters, so
// they are made harmless and kept on one line.
func (c listed) files() string {
	if c.Problem == "" {
		return c.State
	}
	return strings.ToUpper(c.State) + ": " + strings.Join(strings.Fields(words.Harmless(c.Problem)), " ")
}
