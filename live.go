package troupe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// Live generates texts with the weights of a run while it trains; each text with the weights of one step. It is a model for
// package infer/serve.
type Live struct {
	run *Run
	o   SnapshotOptions

	mu    sync.Mutex
	stats BatchStats
}

// Live returns the run as a model. o says how old the weights may be that a text begins with.
func (r *Run) Live(o SnapshotOptions) *Live { return &Live{run: r, o: o} }

// Generate generates a text, as the function Generate does. If LimitLiveTexts are being generated or wait already, or
// LimitSnapshots are in use, the error is ErrBusy.
func (l *Live) Generate(ctx context.Context, o TextOptions, emit func(text []byte) error) (err error) {
	if o.Report == nil {
		o.Report = &GenerateReport{}
	}
	if err := l.begin(); err != nil {
		return err
	}
	defer func() { l.end(o.Report) }()
	s, err := l.run.Snapshot(ctx, l.o)
	if errors.Is(err, ErrSnapshots) || errors.Is(err, ErrNoSnapshot) {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return err
	}
	return errors.Join(s.Generate(ctx, o, emit), s.Close())
}

func (l *Live) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stats.Running >= LimitLiveTexts {
		return fmt.Errorf("%w: %d, the limit; try again later", ErrBusy, l.stats.Running)
	}
	l.stats.Running++
	return nil
}

func (l *Live) end(r *GenerateReport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Running--
	l.stats.Texts++
	l.stats.PromptTokens += uint64(r.PromptTokens)
	l.stats.Tokens += uint64(r.Tokens)
}

// ToolMarker returns the text with which the model's chat template begins a call of a function: see Batch.ToolMarker.
func (l *Live) ToolMarker(tools json.RawMessage) string {
	if s := l.run.snapshotSource(); s.text != nil {
		return s.text.ToolMarker(tools)
	}
	return ""
}

// Stats returns the counts; texts that wait count as running.
func (l *Live) Stats() BatchStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}
