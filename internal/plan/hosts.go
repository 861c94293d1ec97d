package plan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// ErrNoRoom: there are not the processes that a run needs. When there are, it can go on.
var ErrNoRoom = errors.New("not enough workers")

// Hosts are processes that compute ranks.
type Hosts interface {
	// Choose finds those for a configuration's ranks, and keeps them for it until Release.
	// Where there are not enough it waits for some time for more, and fails with ErrNoRoom.
	Choose(ctx context.Context, cfg *config.Config, wait time.Duration) (Workers, error)
}

// Workers are the processes that were chosen for an attempt at a run.
type Workers interface {
	// Path names their kernels, and Devices their devices; Threads is how many parts of
	// actions they compute at a time, all together.
	Path() string
	Devices() string
	Threads() int
	// Assign gives them their ranks, and returns when every one is ready for messages.
	Assign(ctx context.Context, a Assignment) (Ranks, error)
	// Watch is called with the attempt when it has begun. From then on it is told what its
	// stages do, and when a process is lost.
	Watch(*actors.Run)
	// Release gives them back, when the attempt has ended or has not come to begin.
	Release()
}

// Assignment is what an attempt asks of the workers.
type Assignment struct {
	Run    uuid.UUID
	Config *config.Config
	Plan   *Plan
	// EvalMicrobatches are those of a validation; 0: there is none.
	EvalMicrobatches int
	// Stored says that weights are stored ones, which the coordinator reads, and WithState
	// that the optimizer's state is too.
	Stored, WithState bool
	Step              int64 // that the run goes on from
	// Folder is the run's: workers that see it are to write to it; nil: none is.
	Folder folder.FS
}

// Ranks is where the stages of an attempt are, for its actors.Spec.
type Ranks struct {
	Attempt uuid.UUID
	Hosts   []string // by rank
	Shares  []bool   // by rank: whether its process sees the run's folder
	System  *actor.ActorSystem
	Attach  func(*actors.Codec)
	Detach  func()
	// Clock is how the clock of a rank's process stands to this one's.
	Clock func(rank int) event.Clock
	// CutLinks are the links between processes on which nothing arrives; nil: nobody knows.
	CutLinks func() []event.CutLink
	// Memory is the most tensor memory that each rank has taken at a time, as far as it is known.
	Memory func() []int64
}

// LostError says that a process that computed ranks is gone. The run can go on from its
// last checkpoint with another in its place.
type LostError struct {
	Worker string
	Ranks  []int
	Doing  string // what it was last heard to be doing
	Err    error
}

func (e *LostError) Error() string {
	word := "rank"
	if len(e.Ranks) != 1 {
		word = "ranks"
	}
	doing := ""
	if e.Doing != "" {
		doing = ", which was " + e.Doing
	}
	return fmt.Sprintf("worker %s with %s %s is lost%s: %v", e.Worker, word,
		strings.Trim(strings.ReplaceAll(fmt.Sprint(e.Ranks), " ", ", "), "[]"), doing, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }
