package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/base/words"
)

func (a *app) newPs() *cobra.Command {
	var o clientFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the runs of a cluster",
		Long: `List the runs of a cluster's coordinator, those in progress and the last that have
ended: their id, state, step and losses, and the workers that compute them. Other
commands take a run's id, the beginning of it, or its name.`,
		Example: `  engine ps
  engine ps --cluster head:7070 --json`,
		Args: takes(),
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			c, err := o.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			all, err := c.Runs(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				list := make([]runJSON, 0, len(all))
				for _, s := range all {
					list = append(list, jsonRun(s))
				}
				return a.json(list)
			}
			w := tabwriter.NewWriter(a.people(), 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "RUN\tNAME\tSTATE\tSTEP\tLOSS\tVAL LOSS\tWORKERS\tBEGUN\tOUTPUT")
			for _, s := range all {
				workers := "-"
				if len(s.Workers) > 0 && !s.Over() {
					workers = strings.Join(s.Workers, " ")
				}
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d/%d\t%s\t%s\t%s\t%s\t%s\n", s.ID, words.OneLine(s.Name), s.State, s.Step, s.Steps, loss(s.Loss),
					loss(s.ValLoss), workers,
					s.Submitted.Local().Format(time.DateTime), words.OneLine(s.Out))
			}
			err = w.Flush()
			for _, s := range all {
				if s.Waiting != "" {
					a.printf("%s is waiting: %s\n", runName(s), words.OneLine(s.Waiting))
				}
			}
			return err
		}),
	}
	o.set(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func loss(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.4f", *v)
}

// runName names a run for a person.
func runName(s cluster.RunSummary) string { return s.ID + " (" + words.OneLine(s.Name) + ")" }

// runJSON is a run as programs read it.
type runJSON struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	State       string     `json:"state"`
	Step        int        `json:"step"`
	Steps       int        `json:"steps"`
	Loss        *float64   `json:"loss"`
	ValLoss     *float64   `json:"val_loss"`
	Workers     []string   `json:"workers"`
	Submitted   time.Time  `json:"submitted"`
	SubmittedBy string     `json:"submitted_by"`
	Ended       *time.Time `json:"ended"` // null: not yet
	Out         string     `json:"out"`
	Restarts    int        `json:"restarts"`
	Checkpoint  string     `json:"checkpoint"` // the last one; "": none yet
	Error       string     `json:"error"`      // of a run that has failed
	Waiting     string     `json:"waiting"`    // what it waits for before it begins or is resumed
}

func jsonRun(s cluster.RunSummary) runJSON {
	r := runJSON{ID: s.ID, Name: s.Name, State: s.State, Step: s.Step, Steps: s.Steps, Workers: append([]string{}, s.Workers...),
		Submitted: s.Submitted.UTC(), SubmittedBy: s.SubmittedBy,
		Out: s.Out, Restarts: s.Restarts, Checkpoint: s.Checkpoint, Error: s.Error, Waiting: s.Waiting}
	if s.Loss != nil {
		r.Loss = figure(*s.Loss)
	}
	if s.ValLoss != nil {
		r.ValLoss = figure(*s.ValLoss)
	}
	if s.Over() {
		at := s.Ended.UTC()
		r.Ended = &at
	}
	return r
}
