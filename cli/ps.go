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
		Long: `List the runs of a coordinator, both those in progress and the last ones that ended: id,
name, state, step, losses, and the workers that compute them. Other commands accept a
run's id, the start of its id, or its name.

See also: engine status (what each actor does), engine top (live), engine logs.`,
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
			_, _ = fmt.Fprintln(w, "RUN\tNAME\tSTATE\tSTEP\tLOSS\tVAL LOSS\tWORKERS\tSUBMITTED\tOUTPUT")
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

// runName names a run in messages.
func runName(s cluster.RunSummary) string { return s.ID + " (" + words.OneLine(s.Name) + ")" }

// runJSON is a run in JSON output.
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
	Checkpoint  string     `json:"checkpoint"` // path of the last one; "": none yet
	Error       string     `json:"error"`      // of a run that has failed
	Waiting     string     `json:"waiting"`    // what it waits for before it starts or resumes
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
