package troupe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/infer"
	"github.com/troupe-ml/troupe/internal/run/trained"
)

// Errors of Run.Snapshot.
var (
	// ErrSnapshots: LimitSnapshots are open. Close one, or accept an older one with SnapshotOptions.
	ErrSnapshots = errors.New("too many snapshots of a run")
	// ErrNoSnapshot: there are no weights to copy.
	ErrNoSnapshot = errors.New("no weights for a snapshot")
)

// SnapshotOptions allow Run.Snapshot to return an existing snapshot instead of a new one, if it is not older than one of
// the limits. A snapshot of the last step that has ended is always accepted. So is one that is being taken, and none that is
// older than the pause of a paused run.
type SnapshotOptions struct {
	MaxSteps int64         // steps since the snapshot
	MaxAge   time.Duration // time since the snapshot
}

// Snapshot is a copy of a model at the end of one step. It does not change while training
// continues, and stays valid after the run's end, until Close. Its memory is on the host, outside
// the Go heap. Several goroutines may use it.
type Snapshot struct {
	w *weightsAt

	mu     sync.Mutex
	closed bool
}

// Snapshot returns a copy of the run's weights at the end of one step, the same step on all stages. The stages
// copy them between two actions. No loss changes. Callers at the same time share one
// snapshot: see SnapshotOptions. The end of ctx ends the wait.
//
// A paused run returns the weights of the step at which it paused. A run that has ended, or whose ranks are in
// other processes, returns those of its last checkpoint; call Checkpoint for a newer one. If there is no
// checkpoint, the error is ErrNoSnapshot.
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
				select { // it is writing its last checkpoint
				case <-r.done:
					continue
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			if err != nil {
				return nil, err
			}
			// The copy may have begun before the run paused.
			if now := r.snapshotSource(); now.paused && now.inner != nil && w.step < now.step {
				if err := w.release(); err != nil {
					return nil, err
				}
				continue
			}
		}
		return &Snapshot{w: w}, nil
	}
}

// Step returns the step at whose end the weights were copied; 0: before the first step.
func (s *Snapshot) Step() int64 { return s.w.step }

// Generate generates text with the snapshot, as the function Generate does, together with the texts of other callers.
func (s *Snapshot) Generate(ctx context.Context, o TextOptions, emit func(text []byte) error) error {
	return s.use(func(b *infer.Batch) error { return b.Generate(ctx, o, emit) })
}

// GenerateAll generates a text for each of the options with the snapshot, several at once: see infer.Batch.GenerateAll. slices.Values
// turns a slice of options into a sequence.
func (s *Snapshot) GenerateAll(ctx context.Context, texts iter.Seq[TextOptions], emit func(Generated) error) error {
	return s.use(func(b *infer.Batch) error { return b.GenerateAll(ctx, texts, emit) })
}

// use calls a function with the batch of the snapshot, which stays open meanwhile.
func (s *Snapshot) use(f func(*infer.Batch) error) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return closedSnapshot(s.w.step)
	}
	s.w.share()
	s.mu.Unlock()
	b, err := s.w.texts()
	if err == nil {
		err = f(b)
	}
	return errors.Join(err, s.w.release())
}

// closedSnapshot is the error about the use of a closed snapshot; it holds its step. errors.Is finds os.ErrClosed in it.
type closedSnapshot int64

func (c closedSnapshot) Error() string {
	return fmt.Sprintf("the snapshot of step %d is closed", int64(c))
}
func (c closedSnapshot) Unwrap() error { return fs.ErrClosed }

// Close releases the snapshot. A text that it is generating continues to its end.
func (s *Snapshot) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.w.release()
}

// weightsAt are the weights of a step, on their own device. Snapshots and texts being generated
// hold references to them.
type weightsAt struct {
	home  *snapshots
	step  int64
	dir   string // of the checkpoint that they were read from; "": copied from the run
	taken time.Time

	model *trained.Model
	refs  int // guarded by home.mu

	mu    sync.Mutex
	batch *infer.Batch // generates the texts; nil: none was requested yet
}

func (w *weightsAt) share() {
	w.home.mu.Lock()
	defer w.home.mu.Unlock()
	w.refs++
}

// release drops a reference. The newest weights stay for a while.
func (w *weightsAt) release() error { return w.home.release(w) }

// texts returns the batch of all callers.
func (w *weightsAt) texts() (_ *infer.Batch, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.batch == nil {
		w.batch, err = infer.BatchOf(w.model, BatchOptions{Texts: snapshotTexts, Waiting: infer.LimitWaiting})
	}
	return w.batch, err
}

// close frees the weights. No text is being generated.
func (w *weightsAt) close() error {
	if w.batch != nil {
		return w.batch.Close()
	}
	return w.model.Close()
}

// snapshots are those of a run.
type snapshots struct {
	mu     sync.Mutex
	alive  int        // open or being taken
	newest *weightsAt // for the next caller; nil: none
	idle   *time.Timer
	making *making // nil: none is being taken
	ended  bool    // the run has ended
}

// making is a snapshot that is being taken.
type making struct {
	done    chan struct{}
	waiting int // callers; guarded by snapshots.mu, until done is closed
	w       *weightsAt
	err     error
}

// get returns an existing snapshot, or one that is being taken.
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
	var spare *weightsAt // its memory is reused
	if w := s.newest; w != nil && w.refs == 0 {
		spare, s.newest = w, nil
		s.alive--
	}
	if s.alive >= LimitSnapshots {
		return nil, nil, fmt.Errorf("%w: %d are open, the limit; close one, or accept a snapshot older than step %d", ErrSnapshots, s.alive,
			now.step)
	}
	m := &making{done: make(chan struct{}), waiting: 1}
	s.making = m
	s.alive++
	go s.make(m, now, spare) // ends with the copy (at the latest with the run), or when the checkpoint is read
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
		if s.newest != nil && s.newest.refs == 0 { // somebody held it when this one was requested
			old = s.newest
		}
		w.home, w.refs, s.newest = s, m.waiting, w
		if w.refs == 0 {
			unused = s.leave(w)
		}
	}
	close(m.done)
	s.mu.Unlock()
	_ = errors.Join(s.free(old), s.free(unused)) // no caller is left to tell
}

// await waits for a snapshot that is being taken.
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

// leave returns weights without references that must be freed now, or nil. The newest weights of a run
// in progress are freed some time later. mu is held.
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

// free frees weights that nobody holds or can find any more.
func (s *snapshots) free(w *weightsAt) error {
	if w == nil {
		return nil
	}
	s.mu.Lock()
	s.alive--
	s.mu.Unlock()
	return w.close()
}

// end is called when the run has ended: nothing is copied from it any more, and only
// weights with references stay.
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
