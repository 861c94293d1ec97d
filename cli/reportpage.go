package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/show/report"
)

func (a *app) newReport() *cobra.Command {
	var (
		to    string
		force bool
	)
	cmd := &cobra.Command{
		Use:   "report DIR...",
		Short: "Write a report of a run, or a comparison of runs, as one HTML page",
		Long: `Write a report of a run as one HTML page, to keep or to send to others: a summary, the
curves, the pipeline in the last traced step, recorded layer norms and samples, warnings and
errors, and the config. The page needs no other file and no network. A script in it draws
the pipeline; without scripts, browsers show a picture.

DIR is the folder of a run or of a checkpoint; for a checkpoint the page shows the state at
its step. The run may be in progress or have crashed; the page says what is missing.

With several DIRs the page compares the runs: their results, the keys that differ, and their
curves over each other.

See also: engine ui (live), engine diff (the same comparison as text).`,
		Example: `  engine report runs/run
  engine report runs/run --to monday.html
  engine report runs/lr-* --to rates.html
  engine report runs/run --to - | gzip > run.html.gz`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return takes("DIR")(cmd, args)
			}
			return nil
		},
		ValidArgsFunction: completeFolders,
		RunE: a.work(func(_ *cobra.Command, args []string) error {
			if to == "-" && force {
				return usagef("--force has no effect with --to -; remove it")
			}
			runs, err := readRuns(args, func(int) string { return "DIR" })
			if err != nil {
				return err
			}
			write := func(w io.Writer) error {
				if len(runs) == 1 {
					return report.Page(w, runs[0])
				}
				return report.Pages(w, runs)
			}
			if to == "-" {
				return write(a.programs())
			}
			if to == "" {
				if to, err = reportName(args); err != nil {
					return err
				}
			}
			bytes, err := writeReport(to, force, write)
			if err != nil {
				return err
			}
			a.printf("wrote %s: %s\n", words.OneLine(to), words.Bytes(bytes))
			return nil
		}),
	}
	cmd.Flags().StringVar(&to, "to", "",
		"`file` to write; - is standard output (default: in the working directory NAME-report.html for a folder NAME, or runs-report.html)")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file even if it is not a report")
	return cmd
}

// reportName returns the default file name of the report of folders.
func reportName(dirs []string) (string, error) {
	if len(dirs) > 1 {
		return "runs-report.html", nil
	}
	abs, err := filepath.Abs(dirs[0])
	if err != nil {
		return "", err
	}
	return filepath.Base(abs) + "-report.html", nil
}

// writeReport writes a page to a new file, or replaces a file that is a report. It writes the whole page or
// changes nothing.
func writeReport(path string, force bool, write func(io.Writer) error) (size int64, err error) {
	fsys, err := folder.Open(filepath.Dir(path))
	if err != nil {
		return 0, &troupe.SetupError{Err: err}
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	name := filepath.Base(path)
	if err := mayReplace(fsys, name, force); err != nil {
		return 0, &troupe.SetupError{Err: err}
	}
	err = folder.Replace(fsys, name, func(w io.Writer) error {
		counted := &counter{w: w}
		err := write(counted)
		size = counted.n
		return err
	})
	return size, err
}

// mayReplace rejects an existing file that is not a report, unless force is set.
func mayReplace(fsys folder.FS, name string, force bool) error {
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	if force {
		return nil
	}
	start := make([]byte, 4<<10)
	n, err := f.ReadAt(start, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.Contains(start[:n], []byte(report.Mark)) {
		return fmt.Errorf("%s exists and is not a report: choose another --to, or overwrite it with --force", fsys.Path(name))
	}
	return nil
}

// counter counts the bytes that pass through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
