package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/checkpoint"
)

// listed is a checkpoint as `engine ckpt ls` shows it.
type listed struct {
	Step        int       `json:"step"`
	Dir         string    `json:"dir"`
	Bytes       int64     `json:"bytes"`
	Written     time.Time `json:"written,omitzero"` // unknown: left out
	Last        bool      `json:"last"`
	Best        bool      `json:"best"`
	BestValLoss *float64  `json:"best_val_loss"` // so far
	BestStep    int64     `json:"best_step"`     // 0: none
	Problem     string    `json:"problem"`       // the first one; "": all files have their length
}

// storeFolder and the form of a step's name in it are the layout of an output
// folder, as the checkpoint package documents it.
const storeFolder = "checkpoints"

func stepDir(out string, step int) string {
	return filepath.Join(out, storeFolder, fmt.Sprintf("step-%08d", step))
}

// runSteps lists the steps of a run's checkpoints; the path may also be that of
// its folder checkpoints. A run without any is checkpoint.ErrNone.
func runSteps(path string) (out string, steps []int, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", nil, err
	}
	if out = path; filepath.Base(abs) == storeFolder {
		out = filepath.Join(path, "..")
	}
	if _, err := os.Stat(path); err != nil {
		return "", nil, err
	}
	s, err := checkpoint.OpenStore(checkpoint.OS(), out)
	if err != nil {
		return "", nil, err
	}
	if steps, err = s.Steps(); err == nil && len(steps) == 0 {
		err = fmt.Errorf("%s: %w", path, checkpoint.ErrNone)
	}
	return out, steps, err
}

// listCheckpoints describes the checkpoints of a run. It reads small files only.
func listCheckpoints(path string) ([]listed, error) {
	out, steps, err := runSteps(path)
	if err != nil {
		return nil, err
	}
	s, err := checkpoint.OpenStore(checkpoint.OS(), out)
	if err != nil {
		return nil, err
	}
	last, hasLast, err := s.Last()
	if err != nil {
		return nil, err
	}
	best, hasBest, err := s.Best()
	if err != nil {
		return nil, err
	}
	var all []listed
	for _, step := range steps {
		c := listed{Step: step, Dir: stepDir(out, step), Last: hasLast && step == last, Best: hasBest && step == best}
		if err := c.look(); err != nil {
			c.Problem = err.Error()
		}
		all = append(all, c)
	}
	return all, nil
}

// look takes sizes and dates from the folder, and compares them with the
// manifest. Names in the manifest are not trusted: the folder is their root.
func (c *listed) look() (err error) {
	root, err := os.OpenRoot(c.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	info, err := stat(root, "manifest.json")
	if err != nil {
		return err
	}
	c.Written = info.ModTime()
	var m checkpoint.Manifest
	if err := readJSON(root, "manifest.json", checkpoint.ManifestBytesMax, &m); err != nil {
		return err
	}
	for _, f := range m.Files {
		info, err := stat(root, f.Name)
		if err != nil {
			return err
		}
		c.Bytes += info.Size()
		if info.Size() != f.Bytes {
			return fmt.Errorf("%s has %d bytes instead of %d", f.Name, info.Size(), f.Bytes)
		}
	}
	var state actors.TrainerState
	if err := readJSON(root, "trainer.json", checkpoint.FileBytesMax, &state); err != nil {
		return err
	}
	c.BestValLoss, c.BestStep = state.BestValLoss, state.BestStep
	return nil
}

// stat looks at a file, which opening could not do without waiting if it were a
// named pipe.
func stat(root *os.Root, name string) (fs.FileInfo, error) {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s is missing", name)
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return info, err
}

// readJSON reads a file of at most limit bytes.
func readJSON(root *os.Root, name string, limit int64, to any) (err error) {
	if _, err := stat(root, name); err != nil {
		return err
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(io.LimitReader(f, limit))
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
