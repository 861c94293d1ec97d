package cli

import (
	"fmt"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/base/words"
)

// An offset of a clock that is at least offsetMatters is printed, and again when it has changed by offsetTold. A smaller
// one does not change the order in which people read the records.
const (
	offsetMatters = time.Millisecond
	offsetTold    = 5 * time.Millisecond
)

func (a *app) newLogs() *cobra.Command {
	var o clientFlags
	var follow, asJSON, verbose bool
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "logs [RUN]",
		Short: "Show the log of a run, or of a cluster's processes",
		Long: `Show the log of a run on this machine: the events in its folder, from its start to its end.

In a cluster, show the log records of the coordinator and the workers, merged by time; with
RUN only those of that run. The coordinator keeps the last few thousand records.

` + aboutRUN + `

In a cluster, times are those of the coordinator's clock: a worker's times are corrected by the measured
offset of its clock. An offset of at least 1 ms is printed to standard error, and a smaller
one with --verbose.

See also: engine status, engine ps.`,
		Example: `  engine logs runs/first
  engine logs
  engine logs tiny --follow
  engine logs --since 10m --json`,
		Args: takesUpTo("RUN"),

		ValidArgsFunction: completeFolders,
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			if since < 0 {
				return usagef("--since %v: give a positive time, such as 10m", since)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			show := logPrinter{app: a, json: asJSON, least: offsetMatters, told: make(map[string]time.Duration)}
			if verbose {
				show.least = 1
			}
			from := time.Time{}
			if since > 0 {
				from = a.now().Add(-since)
			}
			if len(args) > 0 {
				dir, err := o.locate(ctx, cmd, args[0])
				if err != nil {
					return err
				}
				if dir != "" {
					return localLogs(ctx, dir, from, follow, show.print)
				}
			}
			c, err := o.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			run := ""
			if len(args) > 0 {
				run = args[0]
			}
			return c.Logs(ctx, run, from, follow, show.print)
		}),
	}
	o.set(cmd)
	f := cmd.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "keep printing new records until Ctrl-C")
	f.DurationVar(&since, "since", 0, "show only the records of the last `time`, such as 10m")
	f.BoolVar(&asJSON, "json", false, "print one JSON object per line")
	f.BoolVarP(&verbose, "verbose", "v", false, "print every offset of a clock, however small")
	return cmd
}

// logPrinter prints log records.
type logPrinter struct {
	app     *app
	json    bool
	least   time.Duration            // the smallest offset that is printed
	told    map[string]time.Duration // by process: the offset that its times were corrected by
	dropped uint64
}

func (p *logPrinter) print(records []cluster.LogRecord, dropped uint64) error {
	if dropped > p.dropped {
		p.dropped = dropped
		say(p.app.err, "%d records of workers were dropped: the coordinator's buffer was full", dropped)
	}
	for _, r := range records {
		if was, told := p.told[r.Process]; r.Offset.Abs() >= p.least && (!told || (was-r.Offset).Abs() > offsetTold) {
			p.told[r.Process] = r.Offset
			way := "ahead of"
			if r.Offset < 0 {
				way = "behind"
			}
			say(p.app.err, "the clock of %s is %.2f ms %s the coordinator's; its times are corrected by that", r.Process, ms(r.Offset.Abs()), way)
		}
		if err := p.record(r); err != nil {
			return err
		}
		if p.app.out.err != nil {
			return p.app.out.err
		}
	}
	return nil
}

func (p *logPrinter) record(r cluster.LogRecord) error {
	if p.json {
		attributes := make(map[string]string, len(r.Attributes))
		for _, a := range r.Attributes {
			attributes[a[0]] = a[1]
		}
		return p.app.json(struct {
			Time         time.Time         `json:"time"`
			Level        string            `json:"level"`
			Process      string            `json:"process"`
			Text         string            `json:"text"`
			Attributes   map[string]string `json:"attributes"`
			ClockAheadMS float64           `json:"clock_ahead_ms"`
		}{r.Time.UTC(), r.Level.String(), r.Process, r.Text, attributes, ms(r.Offset)})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %-5s %s: %s", r.Time.Local().Format("2006-01-02 15:04:05.000"), r.Level, r.Process, r.Text)
	for _, a := range r.Attributes {
		value := a[1]
		if value == "" || strings.ContainsAny(value, " \"=\n\t") {
			value = strconv.Quote(value)
		}
		fmt.Fprintf(&b, " %s=%s", a[0], value)
	}
	p.app.printf("%s\n", words.OneLine(b.String()))
	return nil
}
