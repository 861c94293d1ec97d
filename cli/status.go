package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/telemetry/event"
)

func (a *app) newStatus() *cobra.Command {
	var o clientFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [RUN]",
		Short: "Show what every actor of a run does and waits for",
		Long: `Show how a run is. Use it to find out why a run is slow or does not move: it shows what
each actor does and waits for, and the chain of waits down to the actor that blocks the
others. Of a run that has ended it shows how.

` + aboutRUN + `
Without RUN it shows every run in progress: in ./runs, or in the cluster.

In a cluster it first lists the workers: when the coordinator last heard from each, and how
far its clock is ahead. Workers that the coordinator can't reach, and therefore rejects,
follow. Times are those of the coordinator's clock.

See also: engine ps, engine top (live), engine logs.`,
		Example: `  engine status runs/first
  engine status
  engine status tiny --cluster head:7070`,
		Args: takesUpTo("RUN"),

		ValidArgsFunction: completeFolders,
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			at, sure := o.around()
			if len(args) == 0 && !o.named(cmd) && at == "" {
				return a.statusHere(ctx, asJSON)
			}
			if len(args) > 0 {
				dir, err := o.locate(ctx, cmd, args[0])
				if err != nil {
					return err
				}
				if dir != "" {
					r := &localRun{dir: dir}
					defer r.close()
					s, err := r.status(ctx)
					if err != nil {
						return err
					}
					return a.showLocal([]seen{s}, asJSON)
				}
			}
			c, err := o.connect(ctx)
			if err != nil && len(args) == 0 && !o.named(cmd) && !sure {
				say(a.err, "the coordinator of this host does not answer, so these are the runs on this machine: %v", err)
				return a.statusHere(ctx, asJSON)
			}
			if err != nil {
				return err
			}
			defer c.Close()
			return a.statusOf(ctx, c, o.cluster, args, asJSON)
		}),
	}
	o.set(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// statusOf shows the workers of a cluster, and some of its runs; none: all in progress.
func (a *app) statusOf(ctx context.Context, c *cluster.Client, address string, ids []string, asJSON bool) error {
	members, now, err := c.Members(ctx)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		runs, err := c.Runs(ctx)
		if err != nil {
			return err
		}
		for _, s := range runs {
			if !s.Over() {
				ids = append(ids, s.ID)
			}
		}
	}
	var all []seen
	for _, id := range ids {
		s, actors, err := c.Status(ctx, id)
		if err != nil {
			return err
		}
		all = append(all, seenIn(s, actors))
	}
	far, asked, err := c.Unreachable(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		v, err := statusJSON(address, members, now, far, asked, all)
		if err != nil {
			return err
		}
		return a.json(v)
	}
	a.showMembers(members, now)
	for _, w := range far {
		a.printf("rejected %s, which tried to join %.1f s ago: %s\n", words.OneLine(w.Name), asked.Sub(w.Asked).Seconds(),
			words.OneLine(w.Error))
	}
	for _, s := range all {
		a.printf("\n")
		a.showRun(s)
	}
	return nil
}

// statusHere shows the runs in progress in ./runs.
func (a *app) statusHere(ctx context.Context, asJSON bool) error {
	runs, err := localRuns(ctx, nil, false)
	if err != nil {
		return err
	}
	if len(runs) == 0 && !asJSON {
		a.printf("no run is in progress in %s; engine ps --all lists those that have ended\n", runsFolder)
		return nil
	}
	return a.showLocal(runs, asJSON)
}

// showLocal shows runs on this machine.
func (a *app) showLocal(runs []seen, asJSON bool) error {
	if asJSON {
		v, err := statusJSON("", nil, time.Time{}, nil, time.Time{}, runs)
		if err != nil {
			return err
		}
		return a.json(v)
	}
	for i, s := range runs {
		if i > 0 {
			a.printf("\n")
		}
		a.showRun(s)
	}
	return nil
}

// showMembers prints the table of workers.
func (a *app) showMembers(members []cluster.ClusterMember, now time.Time) {
	if len(members) == 0 {
		a.printf("no worker has joined\n")
		return
	}
	w := tabwriter.NewWriter(a.people(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "WORKER\tADDRESS\tCORES\tMEMORY\tKERNELS\tDEVICES\tRUN\tRANKS\tHEARD\tCLOCK AHEAD")
	for _, m := range members {
		run := runOf(m)
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%.1f s ago\t%s\n", words.OneLine(m.Name), m.Address, m.Cores,
			words.Bytes(m.MemoryBytes), words.OneLine(m.Kernels), devices(m.Devices), run, ranks(m.Ranks),
			now.Sub(m.Heard).Seconds(), clock(m.ClockAhead, m.RoundTrip))
	}
	_ = w.Flush() // its writer keeps the error
}

// runOf names the run whose ranks a worker computes, and says whether the worker is about to leave.
func runOf(m cluster.ClusterMember) string {
	run := cmp.Or(m.RunID, "-")
	if m.Leaving {
		run += " (leaving)"
	}
	return run
}

// devices lists a worker's GPUs, such as "2 × NVIDIA H100, 80.0 GiB".
func devices(all []cluster.OfferedDevice) string {
	var names []string
	count := make(map[string]int)
	for _, d := range all {
		name := fmt.Sprintf("%s, %s", words.OneLine(d.Name), words.Bytes(d.MemoryBytes))
		if count[name]++; count[name] == 1 {
			names = append(names, name)
		}
	}
	for i, name := range names {
		if n := count[name]; n > 1 {
			names[i] = fmt.Sprintf("%d × %s", n, name)
		}
	}
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, "; ")
}

// clock formats how far a clock is ahead, with the largest possible error.
func clock(ahead, roundTrip time.Duration) string {
	if roundTrip == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%+.2f ms ± %.2f", ms(ahead), ms(roundTrip)/2)
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

func ranks(all []int) string {
	if len(all) == 0 {
		return "-"
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(all), "[]"), " ", ",")
}

// showRun prints how a run is, and what its actors do.
func (a *app) showRun(s seen) {
	state := s.State
	if s.phase != "" && s.phase != state {
		state += ", " + s.phase
	}
	line := fmt.Sprintf("run %s: %s, step %d/%d", words.OneLine(s.title()), state, s.Step, s.Steps)
	for _, of := range []struct {
		name  string
		value *float64
	}{{"loss", s.Loss}, {"validation loss", s.ValLoss}} {
		if of.value != nil {
			line += fmt.Sprintf(", %s %s", of.name, loss(of.value))
		}
	}
	if s.Restarts > 0 {
		line += ", " + words.Plural(s.Restarts, "restart")
	}
	a.printf("%s\n", line)
	if s.Over() {
		a.showEnd(s)
		return
	}
	if s.Error != "" {
		a.printf("%s\n", s.Error)
	}
	switch {
	case s.Waiting != "" && s.folder != "": // why its process does not answer
		a.printf("%s\n", s.Waiting)
	case s.Waiting != "":
		a.printf("waiting: %s\n", s.Waiting)
	}
	if text := shared(s.actors); text != "" {
		a.printf("%s\n", text)
	}
	if len(s.actors.Actors) == 0 {
		if text := s.actors.Requested(); text != "" {
			a.printf("%s\n", text)
		}
		return
	}
	a.printf("%s", s.actors)
	for i, line := range s.actors.Chain() {
		a.printf("%s%s\n", strings.Repeat("  ", i), line)
	}
}

// showEnd prints how a run ended. What its actors did last is of no use then.
func (a *app) showEnd(s seen) {
	text := "ended " + s.Ended.Local().Format(time.DateTime)
	if took := s.Ended.Sub(s.Submitted); !s.Submitted.IsZero() && took > 0 {
		text += " after " + words.Duration(took)
	}
	if s.result != "" {
		text += ": " + words.OneLine(s.result)
	}
	a.printf("%s\n", text)
	if s.Error != "" && s.Error != s.result && !strings.Contains(s.result, s.Error) {
		a.printf("%s\n", s.Error)
	}
	if s.Checkpoint != "" {
		a.printf("checkpoint %s\n", words.OneLine(s.Checkpoint))
	}
	if s.folder != "" {
		a.printf("%s\n", s.again())
	}
}

// actorKeys are those keys of an event.Status that engine status prints: see docs/events.md.
type actorKeys struct {
	Actors   json.RawMessage `json:"actors"`
	Root     json.RawMessage `json:"root"`
	Chain    json.RawMessage `json:"chain"`
	Requests json.RawMessage `json:"requests"`
	Cut      json.RawMessage `json:"cut_links"`
}

// shared names the workers that compute several ranks of a run; "": none does.
func shared(s event.Status) string {
	ranks := make(map[string][]string)
	for _, x := range s.Actors {
		if x.Rank >= 0 && x.Host != "" {
			ranks[x.Host] = append(ranks[x.Host], strconv.Itoa(x.Rank))
		}
	}
	var all []string
	for _, host := range slices.Sorted(maps.Keys(ranks)) {
		if len(ranks[host]) > 1 {
			all = append(all, fmt.Sprintf("%s computes ranks %s", words.OneLine(host), strings.Join(ranks[host], ", ")))
		}
	}
	return strings.Join(all, "; ")
}

// statusJSON is the status as JSON.
func statusJSON(address string, members []cluster.ClusterMember, now time.Time, far []cluster.UnreachableWorker, asked time.Time,
	runs []seen) (any, error) {
	type worker struct {
		Name        string `json:"name"`
		Address     string `json:"address"`
		Cores       int    `json:"cores"`
		MemoryBytes int64  `json:"memory_bytes"`
		Kernels     string `json:"kernels"`

		Devices []cluster.OfferedDevice `json:"devices"` // GPUs

		Run          string  `json:"run"` // id; "": none
		Ranks        []int   `json:"ranks"`
		HeardS       float64 `json:"heard_s"` // ago
		ClockAheadMS float64 `json:"clock_ahead_ms"`
		RoundTripMS  float64 `json:"round_trip_ms"`
		Leaving      bool    `json:"leaving"` // it was told to stop, and leaves after its run's next checkpoint
	}
	type unreachable struct {
		Name    string  `json:"name"`
		Address string  `json:"address"`
		Error   string  `json:"error"`
		AskedS  float64 `json:"asked_s"` // ago
	}
	type run struct {
		runJSON
		actorKeys
	}
	out := struct {
		Cluster string   `json:"cluster"`
		Workers []worker `json:"workers"`

		Unreachable []unreachable `json:"unreachable"` // workers that try to join and are rejected

		Runs []run `json:"runs"`
	}{Cluster: address, Workers: []worker{}, Unreachable: []unreachable{}, Runs: []run{}}
	for _, w := range far {
		out.Unreachable = append(out.Unreachable, unreachable{w.Name, w.Address, w.Error, asked.Sub(w.Asked).Seconds()})
	}
	for _, m := range members {
		out.Workers = append(out.Workers, worker{m.Name, m.Address, m.Cores, m.MemoryBytes, m.Kernels,
			append([]cluster.OfferedDevice{}, m.Devices...), m.RunID, append([]int{}, m.Ranks...), now.Sub(m.Heard).Seconds(), ms(m.ClockAhead),
			ms(m.RoundTrip), m.Leaving})
	}
	for _, s := range runs {
		r := run{runJSON: jsonRun(s)}
		text, err := json.Marshal(s.actors)
		if err == nil {
			err = json.Unmarshal(text, &r.actorKeys)
		}
		if err != nil {
			return nil, err
		}
		out.Runs = append(out.Runs, r)
	}
	return out, nil
}
