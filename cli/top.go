package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Limits of engine top.
const (
	topEvery    = time.Second
	topFollows  = 16              // runs whose speed and loss curve it shows
	topPatience = 2 * time.Second // how long it waits for the first step of a run
)

func (a *app) newTop() *cobra.Command {
	var o clientFlags
	var once, asJSON bool
	cmd := &cobra.Command{
		Use:   "top [RUN]",
		Short: "Show all runs and workers of a cluster, live",
		Long: `Show the runs and the workers of a cluster on one screen and refresh it every second. For
each run it shows the step, the loss, the speed, and the actor that blocks it; for each
worker its cores, memory and ranks.

Enter shows the stages of the selected run, as engine run --view does; esc goes back; q
quits, and the runs continue. With RUN (id, start of the id, or name) it shows that run only.

With --once, and if the output is not a terminal, it prints the tables once.

See also: engine ps, engine status.`,
		Example: `  engine top
  engine top tiny --cluster head:7070
  engine top --once --json`,
		Args: takesUpTo("RUN"),
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			if asJSON && !once {
				once = true
			}
			c, err := o.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			run := ""
			if len(args) > 0 {
				s, _, err := c.Status(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				run = s.ID
			}
			if !once {
				_, why := a.viewSize()
				if why == "" {
					return a.topLive(cmd.Context(), c, run)
				}
				say(a.err, "printing the tables once, without a live screen: %s", why)
			}
			return a.topOnce(cmd.Context(), c, run, asJSON)
		}),
	}
	o.set(cmd)
	cmd.Flags().BoolVar(&once, "once", false, "print the tables once and exit")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON once and exit")
	return cmd
}

// topRun is a run as engine top shows it.
type topRun struct {
	cluster.RunSummary
	status event.Status
	speed  float64 // tokens/s; NaN: unknown
}

// topState is the state of a cluster at one moment.
type topState struct {
	runs    []topRun
	members []cluster.ClusterMember
	now     time.Time
	err     error
}

// lookAt requests everything except speeds from the coordinator: of one run, or of all with run "".
func lookAt(ctx context.Context, c *cluster.Client, run string) (s topState) {
	if s.members, s.now, s.err = c.Members(ctx); s.err != nil {
		return s
	}
	all, err := c.Runs(ctx)
	if s.err = err; err != nil {
		return s
	}
	for _, r := range all {
		if run != "" && r.ID != run {
			continue
		}
		one := topRun{RunSummary: r, speed: math.NaN()}
		if !r.Over() && len(s.runs) < topFollows {
			if _, one.status, s.err = c.Status(ctx, r.ID); s.err != nil {
				return s
			}
		}
		s.runs = append(s.runs, one)
	}
	// Runs in progress come first, in the order of submission; then the others, the newest first. The coordinator's
	// list has the order of submission, which does not depend on clocks.
	var over []topRun
	s.runs = slices.DeleteFunc(s.runs, func(r topRun) bool {
		if r.Over() {
			over = append(over, r)
		}
		return r.Over()
	})
	slices.Reverse(over)
	s.runs = append(s.runs, over...)
	return s
}

// waits names what blocks a run: the end of its chain of waits.
func (r topRun) waits() string {
	chain := r.status.Chain()
	if n := len(chain); n > 1 && !strings.Contains(chain[n-1], " is ") {
		chain = chain[:n-1] // a cycle, which also appears if two actors change between two looks
	}
	if len(chain) == 0 {
		return "-"
	}
	return chain[len(chain)-1]
}

func (r topRun) speedText() string {
	if math.IsNaN(r.speed) || r.Over() {
		return "-"
	}
	return words.Short(r.speed)
}

// table prints the state as two tables.
func (s topState) table(w io.Writer, selected string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	mark := func(id string) string {
		switch {
		case selected == "":
			return ""
		case id == selected:
			return "> "
		}
		return "  "
	}
	_, _ = fmt.Fprintln(tw, mark("")+"RUN\tNAME\tSTATE\tSTEP\tLOSS\tTOKENS/S\tWAITS")
	for _, r := range s.runs {
		_, _ = fmt.Fprintf(tw, "%s%s\t%s\t%s\t%d/%d\t%s\t%s\t%s\n", mark(r.ID), r.ID, words.OneLine(r.Name), r.State, r.Step, r.Steps,
			loss(r.Loss), r.speedText(), words.OneLine(r.waits()))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(w)
	tw = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "WORKER\tADDRESS\tTHREADS\tMEMORY\tRUN\tRANKS\tHEARD")
	for _, m := range s.members {
		run := runOf(m)
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%s\t%s\t%.1f s ago\n", words.OneLine(m.Name), m.Address, m.Cores, words.Bytes(m.MemoryBytes), run,
			ranks(m.Ranks), s.now.Sub(m.Heard).Seconds())
	}
	return tw.Flush()
}

// topOnce prints a cluster's state.
func (a *app) topOnce(ctx context.Context, c *cluster.Client, run string, asJSON bool) error {
	s := lookAt(ctx, c, run)
	if s.err != nil {
		return s.err
	}
	var asking sync.WaitGroup
	for i := range s.runs {
		if r := &s.runs[i]; !r.Over() && len(r.status.Actors) > 0 {
			asking.Add(1)
			go func() { // ends with its patience
				defer asking.Done()
				r.speed = speedOf(ctx, c, r.ID)
			}()
		}
	}
	asking.Wait()
	if !asJSON {
		return s.table(a.people(), "")
	}
	type runLine struct {
		runJSON
		TokensPerS *float64 `json:"tokens_per_s"` // null: unknown
		Waits      string   `json:"waits"`
		Chain      []string `json:"chain"`
	}
	type workerLine struct {
		Name        string  `json:"name"`
		Address     string  `json:"address"`
		Threads     int     `json:"threads"`
		MemoryBytes int64   `json:"memory_bytes"`
		Run         string  `json:"run"`
		Ranks       []int   `json:"ranks"`
		HeardS      float64 `json:"heard_s"` // ago
	}
	out := struct {
		Runs    []runLine    `json:"runs"`
		Workers []workerLine `json:"workers"`
	}{[]runLine{}, []workerLine{}}
	for _, r := range s.runs {
		one := runLine{runJSON: jsonRun(seenIn(r.RunSummary, r.status)), Waits: r.waits(), Chain: append([]string{}, r.status.Chain()...)}
		if !math.IsNaN(r.speed) {
			one.TokensPerS = &r.speed
		}
		out.Runs = append(out.Runs, one)
	}
	for _, m := range s.members {
		out.Workers = append(out.Workers, workerLine{m.Name, m.Address, m.Cores, m.MemoryBytes, m.RunID, append([]int{}, m.Ranks...),
			s.now.Sub(m.Heard).Seconds()})
	}
	return a.json(out)
}

// speedOf returns the speed of a run's latest step, if the coordinator reports one within topPatience.
func speedOf(ctx context.Context, c *cluster.Client, id string) float64 {
	ctx, cancel := context.WithTimeout(ctx, topPatience)
	defer cancel()
	speed := math.NaN()
	f, err := c.Follow(ctx, id, cluster.FollowOptions{})
	if err != nil {
		return speed
	}
	quiet := time.AfterFunc(topPatience, f.Detach)
	defer quiet.Stop()
	for e := range f.Events() {
		if s, ok := e.(troupe.StepEvent); ok && s.TokensPerS != nil {
			speed = *s.TokensPerS
			quiet.Reset(topPatience / 10) // past events arrive at once
		}
	}
	_, _ = f.Wait()
	return speed
}

// lines splits a text into lines and cuts each to a width.
func lines(text string, width int) []string {
	var all []string
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		if r := []rune(line); len(r) > width {
			line = string(r[:max(0, width-1)]) + ">"
		}
		all = append(all, line)
	}
	return all
}
