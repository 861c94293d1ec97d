package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/folder"
)

func (a *app) newPs() *cobra.Command {
	var o clientFlags
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "ps [DIR…]",
		Short: "List runs, on this machine or in a cluster",
		Long: `List runs. Without a cluster, these are the runs on this machine whose folders are in
./runs, or in the folders DIR: the runs in progress, and with --all also those that ended.

With --cluster or $ENGINE_CLUSTER, or if a coordinator runs on this host, these are the
coordinator's runs, in progress and the last ones that ended: id, name, state, step, losses,
restarts, the steps that were lost and repeated after them, and the workers that compute
them. A line below says what a run waits for, and its position in the queue.

Other commands accept a run's folder, or its name if the folder is in ./runs; in a cluster
the run's id, the start of its id, or its name.

See also: engine status (what each actor does), engine top (live), engine logs.`,
		Example: `  engine ps
  engine ps --all
  engine ps /data/runs --json
  engine ps --cluster head:7070`,
		ValidArgsFunction: completeFolders,
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			runs, local, err := a.listed(cmd, o, args, all)
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				list := make([]runJSON, 0, len(runs))
				for _, s := range runs {
					list = append(list, jsonRun(s))
				}
				return a.json(list)
			case local:
				return a.listLocal(runs, args, all)
			}
			return a.listCluster(runs)
		}),
	}
	o.set(cmd)
	cmd.Flags().BoolVarP(&all, "all", "a", false, "on this machine: also list runs that have ended")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// listed returns the runs of a cluster or, with local, of this machine.
func (a *app) listed(cmd *cobra.Command, o clientFlags, dirs []string, all bool) (runs []seen, local bool, err error) {
	if o.named(cmd) && len(dirs) > 0 {
		return nil, false, usagef("DIR lists runs on this machine, and the flags name a cluster: leave out one of them")
	}
	at, sure := o.around()
	if len(dirs) == 0 && (o.named(cmd) || at != "") {
		runs, err = o.listed(cmd.Context())
		switch {
		case err == nil:
			return runs, false, a.alsoHere(cmd.Context())
		case o.named(cmd) || sure:
			return nil, false, err
		}
		say(a.err, "the coordinator of this host does not answer, so these are the runs on this machine: %v", err)
	}
	runs, err = localRuns(cmd.Context(), dirs, all)
	return runs, true, err
}

// listed returns the runs of the cluster.
func (o *clientFlags) listed(ctx context.Context) (all []seen, err error) {
	c, err := o.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	list, err := c.Runs(ctx)
	asked := 0
	for _, s := range list {
		one := seen{RunSummary: s}
		if !s.Over() && asked < topFollows {
			asked++
			if now, actors, err := c.Status(ctx, s.ID); err == nil { // else only its phase is unknown
				one = seenIn(now, actors)
			}
		}
		all = append(all, one)
	}
	return all, err
}

// alsoHere says which runs are in progress on this machine, beside those of the cluster.
func (a *app) alsoHere(ctx context.Context) error {
	runs, err := localRuns(ctx, nil, false)
	if err != nil {
		return nil //nolint:nilerr // it is about the cluster's runs
	}
	var names []string
	for _, s := range runs {
		if s.pid != 0 { // the coordinator's own runs do not listen
			names = append(names, words.OneLine(s.folder))
		}
	}
	if len(names) > 0 {
		say(a.err, "also in progress on this machine, outside of the cluster: %s (engine ps %s)", strings.Join(names, ", "), runsFolder)
	}
	return nil
}

// localRuns describes the runs in some folders; without any, in ./runs. over: also those that have ended.
func localRuns(ctx context.Context, dirs []string, over bool) (all []seen, err error) {
	if len(dirs) == 0 {
		if !exists(runsFolder) {
			return nil, nil
		}
		dirs = []string{runsFolder}
	}
	folders, err := listRuns(dirs)
	if err != nil {
		return nil, usagef("%w", folder.Missing(err, "DIR", "folder", dirs[0]))
	}
	for _, dir := range folders {
		if !over {
			if who, err := checkpoint.Holder(dir); err == nil && who == "" {
				continue // it has ended: its files, which may be large, need not be read
			}
		}
		r := &localRun{dir: dir}
		s, err := r.status(ctx)
		r.close()
		if err != nil { // one run must not hide the others
			s = seen{RunSummary: cluster.RunSummary{Name: filepath.Base(dir), State: "unknown", Out: dir, Error: err.Error()}, folder: dir}
		}
		if over || !s.Over() {
			all = append(all, s)
		}
	}
	return all, nil
}

// listLocal prints the table of the runs on this machine.
func (a *app) listLocal(runs []seen, dirs []string, all bool) error {
	if len(runs) == 0 {
		where := runsFolder
		if len(dirs) > 0 {
			where = strings.Join(dirs, ", ")
		}
		if all {
			a.printf("there is no run in %s\n", words.OneLine(where))
		} else {
			a.printf("no run is in progress in %s; --all lists those that have ended\n", words.OneLine(where))
		}
		return nil
	}
	w := tabwriter.NewWriter(a.people(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "RUN\tSTATE\tPHASE\tSTEP\tLOSS\tVAL LOSS\tRATE\tTOKENS/S\tRESTARTS\tSTARTED")
	for _, s := range runs {
		rate, speed, started := "-", "-", "-"
		if s.lr != nil {
			rate = fmt.Sprintf("%.2e", *s.lr)
		}
		if s.tokensPerS != nil {
			speed = words.Short(*s.tokensPerS)
		}
		if !s.Submitted.IsZero() {
			started = s.Submitted.Local().Format(time.DateTime)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d/%d\t%s\t%s\t%s\t%s\t%d\t%s\n", words.OneLine(s.folder), s.State, cmp.Or(s.phase, "-"),
			s.Step, s.Steps, loss(s.Loss), loss(s.ValLoss), rate, speed, s.Restarts, started)
	}
	err := w.Flush()
	for _, s := range runs {
		if s.Waiting != "" {
			a.printf("%s: %s\n", words.OneLine(s.folder), words.OneLine(s.Waiting))
		}
		if s.Error != "" {
			a.printf("%s: %s\n", words.OneLine(s.folder), words.OneLine(s.Error))
		}
	}
	return err
}

// listCluster prints the table of a cluster's runs.
func (a *app) listCluster(runs []seen) error {
	w := tabwriter.NewWriter(a.people(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "RUN\tNAME\tSTATE\tSTEP\tLOSS\tVAL LOSS\tRESTARTS\tLOST STEPS\tWORKERS\tPHASE\tSUBMITTED\tOUTPUT")
	for _, s := range runs {
		workers := "-"
		if len(s.Workers) > 0 && !s.Over() {
			workers = strings.Join(s.Workers, " ")
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d/%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", s.ID, words.OneLine(s.Name), s.State, s.Step, s.Steps,
			loss(s.Loss), loss(s.ValLoss), s.Restarts, s.LostSteps, workers, cmp.Or(s.phase, "-"),
			s.Submitted.Local().Format(time.DateTime), words.OneLine(s.Out))
	}
	err := w.Flush()
	for _, s := range runs {
		if s.Waiting != "" {
			a.printf("%s is waiting: %s\n", runName(s.RunSummary), words.OneLine(s.Waiting))
		}
	}
	return err
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
	LostSteps   int        `json:"lost_steps"`     // repeated after restarts
	Position    int        `json:"queue_position"` // from 1; 0: not in the queue
	Checkpoint  string     `json:"checkpoint"`     // path of the last one; "": none yet
	Error       string     `json:"error"`          // of a run that has failed
	Waiting     string     `json:"waiting"`        // what it waits for before it starts or resumes
	// The rest is of runs on this machine.
	Folder     string   `json:"folder,omitempty"`
	PID        int      `json:"pid,omitempty"`   // 0: its process does not answer, or has ended
	Phase      string   `json:"phase,omitempty"` // what it does; of a cluster's run in engine status
	LR         *float64 `json:"lr,omitempty"`
	TokensPerS *float64 `json:"tokens_per_s,omitempty"`
	Followers  int      `json:"followers,omitempty"`
	Result     string   `json:"result,omitempty"` // how it ended
}

func jsonRun(s seen) runJSON {
	r := runJSON{ID: s.ID, Name: s.Name, State: s.State, Step: s.Step, Steps: s.Steps, Workers: append([]string{}, s.Workers...),
		Submitted: s.Submitted.UTC(), SubmittedBy: s.SubmittedBy,
		Out: s.Out, Restarts: s.Restarts, LostSteps: s.LostSteps, Position: s.Position, Checkpoint: s.Checkpoint, Error: s.Error,
		Waiting: s.Waiting,
		Folder:  s.folder, PID: s.pid, Phase: s.phase, LR: s.lr, TokensPerS: s.tokensPerS, Followers: s.followers, Result: s.result}
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
