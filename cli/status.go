package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// runStatus is a run with the state of its actors.
type runStatus struct {
	run    cluster.RunSummary
	actors event.Status
}

func (a *app) newStatus() *cobra.Command {
	var o clientFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [RUN]",
		Short: "Show the workers, and what every actor does and waits for",
		Long: `Show the state of a cluster. Use it to find out why a run is slow or does not move.

First it lists the workers: when the coordinator last heard from each, and how far its
clock is ahead. Workers that the coordinator can't reach, and therefore rejects, follow.
Then, for RUN or else for every run in progress, it shows what each actor does and waits
for, on which host, and the chain of waits down to the actor that blocks the others. Times are
those of the coordinator's clock.

RUN is the run's id, the start of its id, or its name.

See also: engine ps, engine top (live), engine logs.`,
		Example: `  engine status
  engine status tiny --cluster head:7070`,
		Args: takesUpTo("RUN"),
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			c, err := o.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			members, now, err := c.Members(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 0 {
				runs, err := c.Runs(cmd.Context())
				if err != nil {
					return err
				}
				for _, s := range runs {
					if !s.Over() {
						args = append(args, s.ID)
					}
				}
			}
			var all []runStatus
			for _, id := range args {
				var s runStatus
				if s.run, s.actors, err = c.Status(cmd.Context(), id); err != nil {
					return err
				}
				all = append(all, s)
			}
			far, asked, err := c.Unreachable(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				v, err := statusJSON(o.cluster, members, now, far, asked, all)
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
				a.showRun(s)
			}
			return nil
		}),
	}
	o.set(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
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
		run := m.RunID
		if run == "" {
			run = "-"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%.1f s ago\t%s\n", words.OneLine(m.Name), m.Address, m.Cores,
			words.Bytes(m.MemoryBytes), words.OneLine(m.Kernels), devices(m.Devices), run, ranks(m.Ranks),
			now.Sub(m.Heard).Seconds(), clock(m.ClockAhead, m.RoundTrip))
	}
	_ = w.Flush() // its writer keeps the error
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

// showRun prints what a run's actors do.
func (a *app) showRun(s runStatus) {
	a.printf("\nrun %s: %s, step %d/%d\n", runName(s.run), s.run.State, s.run.Step, s.run.Steps)
	if s.run.Error != "" {
		a.printf("%s\n", s.run.Error)
	}
	if s.run.Waiting != "" {
		a.printf("waiting: %s\n", s.run.Waiting)
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

// actorKeys are those keys of an event.Status that engine status prints: see docs/events.md.
type actorKeys struct {
	Actors   json.RawMessage `json:"actors"`
	Root     json.RawMessage `json:"root"`
	Chain    json.RawMessage `json:"chain"`
	Requests json.RawMessage `json:"requests"`
	Cut      json.RawMessage `json:"cut_links"`
}

// statusJSON is the status as JSON.
func statusJSON(address string, members []cluster.ClusterMember, now time.Time, far []cluster.UnreachableWorker, asked time.Time,
	runs []runStatus) (any, error) {
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
			ms(m.RoundTrip)})
	}
	for _, s := range runs {
		r := run{runJSON: jsonRun(s.run)}
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
