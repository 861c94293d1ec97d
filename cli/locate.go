package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/run/control"
	"github.com/troupe-ml/troupe/internal/run/rundir"
)

// runsFolder is where runs are by default: run.out is runs/NAME.
const runsFolder = "runs"

// shownArg is how many bytes of an argument an error shows.
const shownArg = 50

// aboutRUN explains the argument RUN in help texts.
const aboutRUN = `RUN is a run on this machine: its folder, or its name if the folder is in ./runs. With
--cluster or $ENGINE_CLUSTER it is a run of that cluster: its id, the start of its id, or
its name.`

// runFolder returns the folder of a run on this machine that an argument names: the folder itself, or its name in ./runs. "": it
// names none.
func runFolder(arg string) string {
	tries := []string{arg}
	if !isPath(arg) {
		tries = append(tries, filepath.Join(runsFolder, arg))
	}
	for _, try := range tries {
		if dir, err := rundir.RunFolder(try); err == nil && isRun(dir) {
			return filepath.Clean(dir)
		}
	}
	return ""
}

// isRun reports whether a folder is that of a run.
func isRun(dir string) bool {
	info, err := os.Lstat(filepath.Join(dir, checkpoint.LockName)) // a run that is starting has no config yet
	return err == nil && info.Mode().IsRegular()
}

// isPath reports whether an argument can only be a path, not a run's name.
func isPath(arg string) bool {
	return arg == "." || arg == ".." || strings.ContainsAny(arg, `/`+string(filepath.Separator))
}

// named reports whether the command line names a cluster.
func (o *clientFlags) named(cmd *cobra.Command) bool {
	for _, flag := range []string{"cluster", "token-file", "cert-file", "dir"} {
		if cmd.Flags().Changed(flag) {
			return true
		}
	}
	return false
}

// around says which coordinator commands use if the command line names none: "": there is none. sure: the environment names it.
func (o *clientFlags) around() (address string, sure bool) {
	if at := os.Getenv(envCluster); at != "" {
		return at, true
	}
	if dir, err := o.folder(); err == nil {
		if at, err := cluster.AddressIn(dir); err == nil {
			return at, false
		}
	}
	return "", false
}

// locate finds a run: on this machine, then dir is its folder, or else in a cluster.
func (o *clientFlags) locate(ctx context.Context, cmd *cobra.Command, arg string) (dir string, err error) {
	here := runFolder(arg)
	switch {
	case arg == "":
		return "", usagef("RUN is empty: give the run's folder, such as %s/first, or its name", runsFolder)
	case o.named(cmd) && isPath(arg) && here != "":
		return "", usagef("%s is the folder of a run on this machine, and the flags name a cluster: leave out one of them", arg)
	case o.named(cmd):
		return "", nil
	case here == "" && isPath(arg):
		return "", noRun(arg)
	case isPath(arg):
		return here, nil
	}
	at, sure := o.around()
	switch {
	case here == "" && at == "":
		return "", noRun(arg)
	case here == "":
		return "", nil
	case at == "":
		return here, nil
	}
	// Both could be meant. The run in progress is.
	live := listens(ctx, here)
	s, err := o.ask(ctx, arg)
	switch {
	case err == nil && live && !s.Over():
		return "", usagef("%s is in progress both on this machine and in the cluster at %s: give the folder, %s, or add --cluster %s", arg, at,
			here,
			shellWord(at))
	case err == nil && !live:
		return "", nil
	case live || !sure || errors.Is(err, cluster.ErrNoRun):
		return here, nil
	}
	return "", fmt.Errorf("%w; the run on this machine is %s", err, here)
}

// ask asks the coordinator about a run.
func (o *clientFlags) ask(ctx context.Context, run string) (cluster.RunSummary, error) {
	own := *o // connect sets the address
	c, err := own.connect(ctx)
	if err != nil {
		return cluster.RunSummary{}, err
	}
	defer c.Close()
	s, _, err := c.Status(ctx, run)
	return s, err
}

// listens reports whether a process listens for the run with a folder.
func listens(ctx context.Context, dir string) bool {
	c, err := control.Dial(ctx, dir)
	if err != nil {
		return errors.Is(err, control.ErrUser)
	}
	c.Close()
	return true
}

// noRun is the error for an argument that names no run.
func noRun(arg string) error {
	info, err := os.Stat(arg)
	switch {
	case err == nil && info.Mode().IsRegular():
		return usagef("RUN: %s is a file; give the run's folder, such as %s/first. engine run %[1]s trains a config, and resumes its run", arg,
			runsFolder)
	case err == nil && info.IsDir():
		return usagef("RUN: the folder %s is not that of a run: it has no %s; give a run's folder, such as %s/first", arg,
			checkpoint.LockName, runsFolder)
	}
	var names []string
	parent := runsFolder
	if isPath(arg) {
		parent = filepath.Dir(arg)
	}
	entries, _ := os.ReadDir(parent) // without one there is no hint
	for _, e := range entries {
		if isRun(filepath.Join(parent, e.Name())) {
			names = append(names, e.Name())
		}
	}
	hint := didYouMean(filepath.Base(arg), names, parent+string(filepath.Separator))
	if isPath(arg) {
		return usagef("RUN: the folder %q does not exist%s", arg, hint)
	}
	arg = words.Cut(arg, shownArg)
	return usagef("RUN: there is no run %q here: neither ./%[1]s nor %s is a run's folder; for a run of a cluster add --cluster HOST:PORT, or set %s%s",
		arg, filepath.Join(runsFolder, arg), envCluster, hint)
}

// listRuns returns the folders of the runs in some folders. A folder may be that of a run itself.
func listRuns(dirs []string) (all []string, err error) {
	for _, dir := range dirs {
		if run := runFolder(dir); run != "" {
			all = append(all, run)
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if path := filepath.Join(dir, e.Name()); isRun(path) {
				all = append(all, path)
			}
		}
	}
	return all, nil
}

// holding says in a few words which process has a run that does not listen.
func holding(who string) string {
	return fmt.Sprintf("%s has the run and does not listen: it is starting or ending, belongs to a coordinator, or its program has no troupe.Options.Control",
		who)
}
