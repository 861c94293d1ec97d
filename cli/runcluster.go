package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// maxCluster is the largest value of --workers.
const maxCluster = 1 << 16

// checkCluster rejects flags that have no effect with a coordinator, or without one.
func (o *runFlags) checkCluster(cmd *cobra.Command) error {
	if o.client.cluster == "" {
		if cmd.Flags().Changed("cluster") {
			return usagef("--cluster is empty: give the coordinator's HOST:PORT")
		}
		return idle(cmd, "without --cluster", "detach", "workers", "queue", "token-file", "cert-file", "dir")
	}
	if err := unwanted(cmd, []string{"local-cluster"},
		"can't be combined with --cluster: train on this machine or on the coordinator's workers; use only one"); err != nil {
		return err
	}
	if err := unwanted(cmd, []string{"sample"},
		"can't be combined with --cluster: the checkpoint is on the coordinator's host; run engine generate --from DIR there"); err != nil {
		return err
	}
	if err := unwanted(cmd, []string{"metrics", "metrics-insecure"},
		"can't be combined with --cluster: the coordinator serves the metrics of all its runs (engine cluster start --metrics); remove it"); err != nil {
		return err
	}
	if o.workers < 0 || o.workers > maxCluster {
		return usagef("--workers %d: give 0 to %d", o.workers, maxCluster)
	}
	if o.detach {
		return idle(cmd, "with --detach", "quiet", "view")
	}
	return nil
}

// readConfig reads the text of a config file. The coordinator checks it.
func readConfig(path string) ([]byte, error) {
	if err := noFolder(path); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(file, config.MaxFileBytes+1))
		_ = file.Close() // nothing was written
	}
	if err == nil && len(text) > config.MaxFileBytes {
		err = fmt.Errorf("%s is larger than the limit of %d bytes", path, config.MaxFileBytes)
	}
	if err != nil {
		return nil, &troupe.SetupError{Err: missingConfig(fmt.Errorf("read the config: %w", err), path)}
	}
	return text, nil
}

// trainOn submits a run to a coordinator and follows it.
func (a *app) trainOn(ctx context.Context, path string, o runFlags) error {
	text, err := readConfig(path)
	if err != nil {
		return err
	}
	c, err := o.client.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, runSignals()...) // to the end of the program
	a.mindPipes(signals)
	submitting, cancel := context.WithCancel(ctx)
	defer cancel() // a signal before the run has started cancels it: the coordinator notices
	id, err := start(a, notBegun, func() (string, error) {
		if err := waitFor(submitting, c, o.workers, func(text string) { say(a.err, "%s", text) }); err != nil {
			return "", err
		}
		return c.Submit(submitting, cluster.Submission{Config: text, File: path, Sets: o.sets, Fresh: o.fresh, FromStep: o.fromStep,
			AcceptNewData: o.newData, Queue: o.queue,
			Notice: func(text string) { say(a.err, "%s", text) }})
	}, signals)
	if errors.Is(err, cluster.ErrLost) {
		return fmt.Errorf("%w; when the coordinator is back, engine ps%s shows whether the run has started", err, o.client.words())
	}
	if err != nil {
		return err
	}
	if o.detach {
		if o.json {
			return a.json(event.SubmittedEvent{Run: id})
		}
		a.printf("%s\n", id)
		return nil
	}
	return a.followed(ctx, c, o.client.words(), id, true, o, signals)
}

// waitFor waits until the given number of workers has joined, and says who has whenever that changes. Without it, a run
// that is started together with its workers would start on the first of them alone.
func waitFor(ctx context.Context, c *cluster.Client, workers int, notice func(string)) error {
	for last := ""; workers > 0; {
		members, _, err := c.Members(ctx)
		if err != nil {
			return err
		}
		if len(members) >= workers {
			break
		}
		far, _, err := c.Unreachable(ctx)
		if err != nil {
			return err
		}
		if text := missing(members, far, workers); text != last {
			last = text
			notice(text)
		}
		select {
		case <-time.After(waitEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// shownWorkers is how many workers a message names.
const shownWorkers = 8

// missing says which workers have joined, how many are missing, and which try to join in vain.
func missing(members []cluster.ClusterMember, far []cluster.UnreachableWorker, workers int) string {
	text := fmt.Sprintf("waiting for %s: none has joined", words.Plural(workers, "worker"))
	if len(members) > 0 {
		var names []string
		for _, m := range members[:min(len(members), shownWorkers)] {
			names = append(names, words.OneLine(m.Name))
		}
		if more := len(members) - shownWorkers; more > 0 {
			names = append(names, fmt.Sprintf("%d more", more))
		}
		text = fmt.Sprintf("waiting for %s: %d joined (%s), %d missing", words.Plural(workers, "worker"), len(members),
			strings.Join(names, ", "), workers-len(members))
	}
	for _, w := range far[:min(len(far), shownWorkers)] {
		text += fmt.Sprintf("; %s is rejected: %s", words.OneLine(w.Name), words.OneLine(w.Error))
	}
	return text
}

// waitEvery is the time between two requests for the list of workers.
const waitEvery = 200 * time.Millisecond

// followed shows a coordinator's run until it ends or the user stops following. flags are those of another command to the coordinator.
func (a *app) followed(ctx context.Context, c *cluster.Client, flags, id string, known bool, o runFlags, signals <-chan os.Signal) error {
	// A signal in the meantime waits: once the run is followed, it can be told to stop.
	f, err := c.Follow(ctx, id, cluster.FollowOptions{Known: known, Notice: func(text string) { say(a.err, "%s", text) }})
	if err != nil {
		return err
	}
	shown, err := a.withPage(o.page)
	if err != nil {
		f.Detach()
		_, _ = f.Wait() // its error only says that we detached
		return err
	}
	defer shown.end(0)
	shown.attach(f.Name, controlled{f, ctx, c})
	again := fmt.Sprintf("engine follow %s%s", f.ID, flags)
	if err := a.awaitTurn(f, known, signals); err != nil {
		shown.end(0)
		if errors.Is(err, cluster.ErrDetached) {
			say(a.err, "run %s continues to wait in the queue; to follow it again: %s", f.ID, again)
			return errStopped
		}
		return err
	}
	show := a.newReporter(changing{f, ctx, c}, f.LogEvery, o)
	res, err := follow(f, show, signals)
	shown.end(pagePatience)
	switch {
	case errors.Is(err, cluster.ErrDetached):
		say(a.err, "run %s continues; to follow it again: %s", f.ID, again)
		return errStopped
	case errors.Is(err, cluster.ErrGone):
		return fmt.Errorf("%w; when the coordinator is back: %s", err, again)
	case err != nil:
		if res.Dir != "" {
			err = errors.Join(err, fmt.Errorf("the last checkpoint is %s", res.Dir))
		}
		return err
	}
	show.end(res)
	if res.Stopped {
		return errStopped
	}
	return nil
}

// changing is a followed run that accepts changes, as a run in this process does.
type changing struct {
	*cluster.Followed
	ctx context.Context
	c   *cluster.Client
}

func (r changing) Change(ch troupe.Change) error {
	_, err := r.c.Change(r.ctx, r.ID, ch)
	return err
}
