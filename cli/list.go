package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
)

// listed is a checkpoint as `engine ckpt ls` shows it.
type listed struct {
	Step        int       `json:"step"`
	Dir         string    `json:"dir"`
	Bytes       int64     `json:"bytes"`
	Written     time.Time `json:"written,omitzero"` // omitted if unknown
	Last        bool      `json:"last"`
	Best        bool      `json:"best"`
	Weights     bool      `json:"weights_only,omitempty"` // no run resumes from it
	BestValLoss *float64  `json:"best_val_loss"`          // so far
	BestStep    int64     `json:"best_step"`              // 0: none
	State       string    `json:"state"`                  // "complete", or a checkpoint.State
	Problem     string    `json:"problem"`                // the first one; "": all files have their full length

	Data      *trainstate.Data      `json:"data"` // null: not known
	Decisions []trainstate.Decision `json:"decisions,omitempty"`
}

// complete is the state of a checkpoint that has all files in full length. Only verify knows whether their
// content is intact.
const complete = "complete"

// withStore calls use with the checkpoints of a run. path is the run's folder or its folder checkpoints. If
// there are no checkpoints, the error is checkpoint.ErrNone.
func withStore(path string, use func(s *checkpoint.Store, steps []int) error) (err error) {
	out, err := rundir.RunFolder(path)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	fsys, err := checkpoint.OpenFS(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	s, err := checkpoint.OpenStore(fsys, ".")
	if err != nil {
		return err
	}
	steps, err := s.Steps()
	if err == nil && len(steps) == 0 {
		err = fmt.Errorf("%s: %w", path, checkpoint.ErrNone)
	}
	if err != nil {
		return err
	}
	return use(s, steps)
}

// listTries bounds how often the list is read again while a run removes all checkpoints in it.
const listTries = 10

// listCheckpoints describes the checkpoints of a run. It reads only small files.
func listCheckpoints(path string) (all []listed, err error) {
	for range listTries {
		if all, err = listOnce(path); err != nil || len(all) > 0 {
			break
		}
	}
	return all, err
}

func listOnce(path string) (all []listed, err error) {
	err = withStore(path, func(s *checkpoint.Store, steps []int) error {
		last, hasLast, err := s.Last()
		if err != nil {
			return err
		}
		best, hasBest, err := s.Best()
		if err != nil {
			return err
		}
		weights, only, err := s.BestWeights()
		if err != nil {
			return err
		}
		for _, step := range steps {
			c := listed{Step: step, Last: hasLast && step == last, Best: hasBest && !only && step == best}
			if err := c.look(s); errors.Is(err, checkpoint.ErrNone) {
				continue // the run in progress has removed it
			} else if err != nil {
				return err
			}
			all = append(all, c)
		}
		if !only {
			return nil
		}
		c := listed{Step: weights, Best: true, Weights: true}
		if err := c.look(s); errors.Is(err, checkpoint.ErrNone) {
			return nil // as above
		} else if err != nil {
			return err
		}
		all = append(all, c)
		return nil
	})
	return all, err
}

// look reads sizes and dates from the folder, and losses from the trainer's state.
func (c *listed) look(s *checkpoint.Store) error {
	find := s.Look
	if c.Weights {
		find = s.LookBest
	}
	look, err := find(c.Step, rundir.TrainerFile)
	if err != nil {
		return err
	}
	c.Dir, c.Bytes, c.Written, c.State = look.Dir, look.Bytes, look.Written, string(look.State())
	if look.Intact() {
		c.State = complete
	}
	if len(look.Problems) > 0 {
		c.Problem = look.Problems[0].String()
		return nil
	}
	var state trainstate.State
	switch err := json.Unmarshal(look.File, &state); {
	case look.File == nil:
		c.State, c.Problem = string(checkpoint.StateMissing), rundir.TrainerFile+": the manifest does not list it"
	case err != nil:
		c.State, c.Problem = string(checkpoint.StateDamaged), fmt.Sprintf("%s: %v", rundir.TrainerFile, err)
	case state.FormatVersion > trainstate.Version:
		c.State, c.Problem = string(checkpoint.StateTooNew), fmt.Sprintf("%s: format version %d; this program reads up to %d", rundir.TrainerFile,
			state.FormatVersion, trainstate.Version)
	default:
		c.BestValLoss, c.BestStep, c.Decisions = state.BestValLoss, state.BestStep, state.Decisions
		if state.Data.Train.SHA256 != "" {
			c.Data = &state.Data
		}
	}
	return nil
}
