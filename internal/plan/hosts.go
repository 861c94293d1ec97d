package plan

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// ErrNoRoom: there are not enough free workers for a run. It can start when there are.
var ErrNoRoom = errors.New("not enough workers")

// Hosts choose the processes that compute ranks.
type Hosts interface {
	// Choose reserves workers for a configuration's ranks, until Release.
	// If there are not enough, it waits up to wait for more, then fails with ErrNoRoom.
	Choose(ctx context.Context, cfg *config.Config, wait time.Duration) (Workers, error)
}

// Workers are the processes that compute the ranks of an attempt.
type Workers interface {
	// Path names their kernels, and Devices their devices. Threads is the number of threads of
	// all of them.
	Path() string
	Devices() string
	Threads() int
	// Assign gives them their ranks and returns when all are ready for messages.
	Assign(ctx context.Context, a Assignment) (Ranks, error)
	// Watch is called with the attempt when it has started. From then on the attempt learns what its
	// stages do, and when a worker fails.
	Watch(*actors.Run)
	// Release frees them after the attempt, or if it could not start.
	Release()
}

// Renewer is a Workers that can replace some of its workers.
type Renewer interface {
	// Renew replaces the workers that have failed, after an attempt whose other workers have kept their stages. It waits up to wait for
	// replacements, then fails with ErrNoRoom. The result has the other workers, too: release only it, unless Renew fails. With rescue
	// there is no room for the ranks of those that have failed: the attempt can only write a checkpoint, from their shadows or replicas.
	Renew(ctx context.Context, wait time.Duration) (w Workers, rescue bool, err error)
}

// Assignment describes the work of an attempt to its workers.
type Assignment struct {
	Run    uuid.UUID
	Config *config.Config
	Plan   *Plan
	// EvalMicrobatches is the number of microbatches of a validation; 0: no validation.
	EvalMicrobatches int
	// Stored: the coordinator reads the weights from a checkpoint. WithState: it also reads
	// the optimizer state.
	Stored, WithState bool
	Step              int64 // that the run resumes from
	// Adopt is what the stages of the attempt before continue from, for workers that Renew has returned; nil: a new attempt.
	Adopt *actors.Target
	// Rescue: the attempt only writes a checkpoint; see actors.Spec.Rescue.
	Rescue bool
	// Folder is the run's folder: workers that see it write to it; nil: no worker writes.
	Folder folder.FS
}

// Ranks describe where the stages of an attempt are, for its actors.Spec.
type Ranks struct {
	Attempt uuid.UUID
	Hosts   []string // by rank
	Shares  []bool   // by rank: whether its process sees the run's folder
	System  *actor.ActorSystem
	Attach  func(*actors.Codec)
	Detach  func()
	// Clock returns the offset of the clock of a rank's process.
	Clock func(rank int) event.Clock
	// CutLinks returns the links between workers on which nothing arrives; nil: not known.
	CutLinks func() []event.CutLink
	// Shadows says where the attempt has shadows of the ranks. Held says where the shadows are from which lost ranks get their state: the
	// same ones, or in a rescue those of the attempt before.
	Shadows, Held Shadows
	// Replaced are the ranks that get their state from others, in an attempt that continues another one.
	Replaced []int
	// Left returns the ranks whose state is also with workers that have left: until Loaded is called, when all stages have their weights.
	// nil: there are none.
	Left   func() []int
	Loaded func()
	// Memory returns the peak tensor memory of each rank in bytes, as far as it is known.
	Memory func() []int64
}

// LostError: a worker failed or disconnected. The run can restart from its
// last checkpoint with another worker.
type LostError struct {
	Worker string
	Ranks  []int
	Doing  string // its last known activity
	Err    error
	Leaves bool      // it was told to stop, and others get its ranks
	At     time.Time // when this was noticed; zero: unknown
}

func (e *LostError) Error() string {
	word := "rank"
	if len(e.Ranks) != 1 {
		word = "ranks"
	}
	doing := ""
	if e.Leaves {
		return fmt.Sprintf("worker %s with %s %s leaves: %v", e.Worker, word, words.Numbers(e.Ranks), e.Err)
	}
	if e.Doing != "" {
		doing = " (last status: " + e.Doing + ")"
	}
	return fmt.Sprintf("worker %s with %s %s failed%s: %v", e.Worker, word,
		words.Numbers(e.Ranks), doing, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }
