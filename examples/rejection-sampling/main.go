// Command rejection-sampling tunes a model on the best of its own answers. A small model learns sums from examples of which every second
// one is wrong. Then it answers, a rule keeps the right answers, and the model is tuned on these, for some rounds: RAFT (Dong et al.
// 2023), also known as expert iteration. No run knows the rule.
//
//	go run ./examples/rejection-sampling --dir runs/sums
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
)

func main() {
	dir := flag.String("dir", "runs/sums", "folder of the runs; it must not exist yet")
	rounds := flag.Int("rounds", 2, "times to tune on the right answers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := improve(ctx, os.Stdout, *dir, *rounds); err != nil {
		log.Fatal(err)
	}
}

// answer is a sum with an answer, as data.format = "documents" reads it. The model learns the completion.
type answer struct {
	Prompt     string `json:"prompt"`
	Completion string `json:"completion"`
}

// right is the rule. It could as well run a test or ask another model.
func (a answer) right() bool {
	var x, y int
	_, err := fmt.Sscanf(a.Prompt, "%d+%d=", &x, &y)
	return err == nil && a.Completion == completion(x+y)
}

func prompt(i int) string       { return fmt.Sprintf("%d+%d=", i/10%10, i%10) }
func completion(sum int) string { return fmt.Sprintf("%02d\n", sum) }

// improve trains a model on all examples, then tunes it on the right ones of its own answers.
func improve(ctx context.Context, out io.Writer, dir string, rounds int) error {
	rng := rand.New(rand.NewPCG(1, 2))
	var examples []answer
	for i := range 800 {
		sum := i/10%10 + i%10
		if i%2 == i/100%2 {
			sum = rng.IntN(19)
		}
		examples = append(examples, answer{prompt(i), completion(sum)})
	}
	from := ""
	for round := range rounds + 1 {
		name := filepath.Join(dir, fmt.Sprintf("round-%d", round))
		if err := write(name+".jsonl", examples); err != nil {
			return err
		}
		answers, err := train(ctx, out, from, name)
		if err != nil {
			return err
		}
		examples = slices.DeleteFunc(slices.Clone(answers), func(a answer) bool { return !a.right() })
		fmt.Fprintf(out, "%s: %d of %d answers are right\n", filepath.Base(name), len(examples), len(answers))
		from = name
	}
	return nil
}

// train trains a model on name.jsonl and returns its answers. from is the run to start from; "": none.
func train(ctx context.Context, out io.Writer, from, name string) ([]answer, error) {
	cfg, err := config.New(func(c *config.Config) {
		c.Run.Out, c.Run.Steps, c.Run.EvalEvery, c.Run.CheckpointEvery = name, 600, 0, 0
		c.Data.Train, c.Data.Format = []string{name + ".jsonl"}, "documents"
		c.Model.Layers, c.Model.Hidden, c.Model.Heads, c.Model.Context = 2, 64, 4, 16
		c.Batch.Sequences, c.Batch.Microbatch = 32, 32
		c.Optimizer.LR, c.Optimizer.WarmupSteps = 3e-3, 20
		c.Pipeline.Stages = 2
		if from != "" {
			c.Model.From, c.Run.Steps, c.Optimizer.LR = from, 100, 1e-3
		}
	})
	if err != nil {
		return nil, err
	}
	run, err := troupe.Start(ctx, cfg, troupe.Options{})
	if err != nil {
		return nil, err
	}
	for e := range run.Events() {
		if e, ok := e.(troupe.StepEvent); ok && e.Step == cfg.Run.Steps/2 { // training continues meanwhile
			answers, err := sample(ctx, run)
			if err != nil {
				run.Kill()
				_, _ = run.Wait() // the error is the answers'
				return nil, err
			}
			n := len(slices.DeleteFunc(answers, func(a answer) bool { return !a.right() }))
			fmt.Fprintf(out, "%s, step %d: %d answers are right\n", filepath.Base(name), e.Step, n)
		}
	}
	if _, err := run.Wait(); err != nil {
		return nil, err
	}
	return sample(ctx, run) // from the last checkpoint
}

// sample lets the model answer each sum four times.
func sample(ctx context.Context, run *troupe.Run) (answers []answer, err error) {
	s, err := run.Snapshot(ctx, troupe.SnapshotOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var texts []troupe.TextOptions
	for i := range 400 {
		texts = append(texts, troupe.TextOptions{Prompt: prompt(i), Tokens: 4, Temperature: 1, Seed: uint64(i), Stop: []string{"\n"}})
	}
	err = s.GenerateAll(ctx, slices.Values(texts), func(g troupe.Generated) error {
		answers = append(answers, answer{texts[g.Index].Prompt, g.Text + "\n"})
		return g.Err
	})
	return answers, err
}

// write writes documents as JSON lines.
func write(path string, all []answer) error {
	var lines bytes.Buffer
	for _, a := range all {
		if err := json.NewEncoder(&lines).Encode(a); err != nil {
			return err
		}
	}
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, lines.Bytes(), 0o600))
}
