package troupe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/infer"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// Errors of Run.Snapshot.
var (
	// ErrSnapshots: LimitSnapshots of them are there. Close one, or take an older one.
	ErrSnapshots = errors.New("too many snapshots of a run")
	// ErrNoSnapshot: there are no weights that a snapshot could be of.
	ErrNoSnapshot = errors.New("no weights to take a snapshot of")
)

// SnapshotOptions say which snapshots serve as well as a new one: those that are not older than
// either says. One of the last step that has ended always does, and one that is being taken.
type SnapshotOptions struct {
	MaxSteps int64         // steps that have ended since its own
	MaxAge   time.Duration // since it was taken
}

// Snapshot is a model as it was at the end of one step. It stays as it is while training goes
// on, and when the run has ended, until Close; its memory is on the host, outside of the
// garbage collector's heap. It may be used from several goroutines.
type Snapshot struct {
	w *weightsAt

	mu     sync.Mutex
	closed bool
}

// Snapshot takes a snapshot of the run's weights: of one step, the same on all stages. The stages
// copy them between two of their actions, and no figure of the training changes. Those who want
// one at the same time share it, see SnapshotOptions. The end of ctx ends the wait for it.
//
// A paused run gives one of the step that it has paused at, and a run that has ended one of its
// last checkpoint; so does, at any time, a run whose ranks are in other processes: Checkpoint
// makes a newer one. Where there is no checkpoint then, the error is ErrNoSnapshot.
func (r *Run) Snapshot(ctx context.Context, o SnapshotOptions) (*Snapshot, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m, w, err := r.snapshots.get(r, o)
		if err != nil {
			return nil, err
		}
		if w == nil {
			if w, err = r.snapshots.await(ctx, m); errors.Is(err, actors.ErrEnded) {
				select { // its last checkpoint is written now, if there is one
				case <-r.done:
					continue
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			if err != nil {
				return nil, err
			}
		}
		return &Snapshot{w: w}, nil
	}
}

// Step is the step at whose end the weights were what they are here; 0: before the first.
func (s *Snapshot) Step() int64 { return s.w.step }

// Generate is the package's function, for this model, where it is: o.ModelOptions must be empty.
func (s *Snapshot) Generate(ctx context.Context, o GenerateOptions, emit func(text []byte) error) error {
	if o.ModelOptions != (ModelOptions{}) {
		return fmt.Errorf("%w: a snapshot has its own model and device, and ModelOptions %+v", ErrOptions, o.ModelOptions)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("the snapshot of step %d: %w", s.w.step, fs.ErrClosed)
	}
	s.w.share()
	s.mu.Unlock()
	return errors.Join(s.w.generate(ctx, o, emit), s.w.release())
}

// Close gives the snapshot up. What it generates goes on to its end.
func (s *Snapshot) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.w.release()
}

// weightsAt are the weights of a step, with a device of their own. Whoever has a snapshot of
// them, or generates, holds them.
type weightsAt struct {
	home  *snapshots
	step  int64
	dir   string // of the checkpoint that they were read from; "": they are from the run
	taken time.Time

	model *trained.Model
	refs  int // guarded by home.mu

	mu   sync.Mutex
	idle []*infer.Generator // that nobody uses; at most as many as have generated at a time
}

func (w *weightsAt) share() {
	w.home.mu.Lock()
	defer w.home.mu.Unlock()
	w.refs++
}

// release lets go of the weights. The newest stay for a while.
func (w *weightsAt) release() error { return w.home.release(w) }

// generate continues a prompt on a generator that nobody else uses meanwhile.
func (w *weightsAt) generate(ctx context.Context, o GenerateOptions, emit func(text []byte) error) error {
	w.mu.Lock()
	var g *infer.Generator
	if n := len(w.idle); n > 0 {
		g, w.idle = w.idle[n-1], w.idle[:n-1]
	}
	w.mu.Unlock()
	if g == nil {
		g = infer.GeneratorOf(w.model)
	}
	defer func() {
		w.mu.Lock()
		w.idle = append(w.idle, g)
		w.mu.Unlock()
	}()
	return g.Generate(ctx, o, emit)
}

// snapshots are those of a run.
type snapshots struct {
	mu     sync.Mutex
	alive  int        // that are there or being taken
	newest *weightsAt // for the next one who wants one; nil: there is none
	idle   *time.Timer
	making *making // nil: none is being taken
	ended  bool    // the run has
}

// making is the taking of a snapshot, and who waits for it.
type making struct {
	done    chan struct{}
	waiting int // guarded by snapshots.mu, until done is closed
	w       *weightsAt
	err     error
}

// get gives a snapshot that is there, or one that is being taken.
func (s *snapshots) get(r *Run, o SnapshotOptions) (*making, *weightsAt, error) {
	now := r.snapshotSource()
	if now.err != nil {
		return nil, nil, now.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.newest; w != nil && now.accepts(w, o) {
		w.refs++
		return nil, w, nil
	}
	if s.making != nil {
		s.making.waiting++
		return s.making, nil, nil
	}
	var spare *weightsAt // whose memory serves the next
	if w := s.newest; w != nil && w.refs == 0 {
		spare, s.newest = w, nil
		s.alive--
	}
	if s.alive >= LimitSnapshots {
		return nil, nil, fmt.Errorf("%w: %d are there, the most; close one, or accept one older than step %d", ErrSnapshots, s.alive, now.step)
	}
	m := &making{done: make(chan struct{}), waiting: 1}
	s.making = m
	s.alive++
	go s.make(m, now, spare) // ends with the copy, which ends with the run, or with the reading of a checkpoint
	return m, nil, nil
}

func (s *snapshots) make(m *making, from snapshotSource, spare *weightsAt) {
	w, err := from.take(spare)
	s.mu.Lock()
	s.making = nil
	var old, unused *weightsAt
	if m.w, m.err = w, err; err != nil {
		s.alive--
	} else {
		if s.newest != nil && s.newest.refs == 0 { // somebody had it when this one was asked for
			old = s.newest
		}
		w.home, w.refs, s.newest = s, m.waiting, w
		if w.refs == 0 {
			unused = s.leave(w)
		}
	}
	close(m.done)
	s.mu.Unlock()
	_ = errors.Join(s.free(old), s.free(unused)) // nobody is left who could be told
}

// await waits for one that is being taken.
func (s *snapshots) await(ctx context.Context, m *making) (*weightsAt, error) {
	select {
	case <-m.done:
		return m.w, m.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	select {
	case <-m.done:
		s.mu.Unlock()
		if m.err == nil {
			return nil, errors.Join(ctx.Err(), s.release(m.w))
		}
	default:
		m.waiting--
		s.mu.Unlock()
	}
	return nil, ctx.Err()
}

func (s *snapshots) release(w *weightsAt) error {
	s.mu.Lock()
	w.refs--
	var unused *weightsAt
	if w.refs == 0 {
		unused = s.leave(w)
	}
	s.mu.Unlock()
	return s.free(unused)
}

// leave says whether weights that nobody holds are to be freed now. The newest ones of a run
// that goes on are so only some time later. mu is held.
func (s *snapshots) leave(w *weightsAt) *weightsAt {
	if s.newest != w {
		return w
	}
	if s.ended {
		s.newest = nil
		return w
	}
	if s.idle != nil {
		s.idle.Stop()
	}
	s.idle = time.AfterFunc(idleSnapshot, func() { // stopped by end
		s.mu.Lock()
		var unused *weightsAt
		if s.newest == w && w.refs == 0 {
			s.newest, unused = nil, w
		}
		s.mu.Unlock()
		_ = s.free(unused) // as in make
	})
	return nil
}

// free gives weights back that nobody holds or can find any more.
func (s *snapshots) free(w *weightsAt) error {
	if w == nil {
		return nil
	}
	s.mu.Lock()
	s.alive--
	s.mu.Unlock()
	return w.model.Close()
}

// end is called when the run has ended: nothing is copied from it any more, and weights stay
// only as long as somebody holds them.
func (s *snapshots) end() error {
	s.mu.Lock()
	m := s.making
	s.mu.Unlock()
	if m != nil {
		<-m.done
	}
	s.mu.Lock()
	s.ended = true
	if s.idle != nil {
		s.idle.Stop()
	}
	var unused *weightsAt
	if w := s.newest; w != nil {
		if s.newest = nil; w.refs == 0 {
			unused = w
		}
	}
	s.mu.Unlock()
	return s.free(unused)
}

// snapshotSource is what the next snapshot of a run would be of.
type snapshotSource struct {
	inner  *actors.Run // nil: a checkpoint
	dir    string
	step   int64 // that has ended last
	shape  *stages.Model
	tok    tokenizer.Tokenizer
	text   *corpus.Text
	device config.Device
	err    error
}

func (r *Run) snapshotSource() (s snapshotSource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attempt == nil {
		s.err = fmt.Errorf("%w: the run has not begun yet", ErrNoSnapshot)
		return s
	}
	s = snapshotSource{step: r.step, shape: r.attempt.Model, tok: r.attempt.Tokenizer, text: r.attempt.Text, device: r.cfg.Device}
	ended := false
	select {
	case <-r.done:
		ended = true
	default:
	}
	if !ended && !r.apart {
		s.inner = r.inner
		return s
	}
	if s.dir = r.result.Dir; s.dir == "" {
		s.err = fmt.Errorf("%w: no checkpoint was written, and the run's ranks are in other processes; ask it for one", ErrNoSnapshot)
		if ended {
			s.err = fmt.Errorf("%w: the run has ended without a checkpoint", ErrNoSnapshot)
		}
	}
	return s
}

// accepts reports whether weights that are there serve as well as new ones.
func (s *snapshotSource) accepts(w *weightsAt, o SnapshotOptions) bool {
	switch {
	case s.inner == nil:
		return w.dir == s.dir
	case w.step >= s.step, o.MaxSteps > 0 && s.step-w.step <= o.MaxSteps:
		return true
	}
	return o.MaxAge > 0 && time.Since(w.taken) <= o.MaxAge
}

// take takes a snapshot; spare, if there is one, is a former one of the run that nobody needs.
func (s *snapshotSource) take(spare *weightsAt) (*weightsAt, error) {
	if s.inner == nil {
		if spare != nil {
			_ = spare.model.Close() // nothing but memory
		}
		return s.read()
	}
	w := spare
	if w == nil || w.dir != "" {
		m, err := trained.Hold(s.shape, s.tok, s.text, s.device)
		if err != nil {
			return nil, err
		}
		w = &weightsAt{model: m}
	}
	step, err := s.inner.CopyWeights(w.model.Weights.HostWeight)
	if err != nil {
		return nil, errors.Join(err, w.model.Close())
	}
	w.step, w.taken = step, time.Now()
	w.model.Source = fmt.Sprintf("the run at step %d", step)
	return w, nil
}

// read reads the weights of the checkpoint.
func (s *snapshotSource) read() (*weightsAt, error) {
	m, err := trained.Open(trained.Options{From: s.dir, Threads: s.device.Threads, Kernels: s.device.Kernels}, false)
	if err != nil {
		return nil, err
	}
	if m.Weights, err = m.Stage(m.Device.NewStream("snapshot")); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &weightsAt{model: m, step: int64(m.Checkpoint.Step()), dir: s.dir, taken: time.Now()}, nil
}

// compile-time: what is copied is a stage's.
var _ actors.WeightCopier = (*stages.Stage)(nil)
