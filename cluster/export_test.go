package cluster

import (
	"context"
	"time"

	"github.com/troupe-ml/troupe/checkpoint"
)

// SetFolderView changes how a worker sees paths.
func SetFolderView(view func(path string) string) { folderView = view }

// SetWriteOwn wraps the function with which a worker writes its checkpoint files.
func SetWriteOwn(write func(ctx context.Context, fsys checkpoint.FS, out string, step int, tag string, own []checkpoint.Own) ([]uint32,
	error)) {
	writeOwn = write
}

// SetAhead sets the worker's clock ahead of its system's.
func (c *WorkerConfig) SetAhead(by time.Duration) { c.ahead = by }

// SetTap sets a function that is called with each message of the worker that leaves or has come, and the id of its actor.
func (c *WorkerConfig) SetTap(f func(out bool, target string, message any)) { c.tap = f }

// SetAtPoint sets a function that is called at the points of a run's start.
func (c *Config) SetAtPoint(f func(point string)) { c.atPoint = f }

// SetSteady sets how long a worker must have been a member before a run is regrouped to use it.
func (c *Config) SetSteady(d time.Duration) { c.steady = d }

// SetHandOver sets how long the step in progress may take to end before the ranks of a worker that leaves move to another one.
func (c *Config) SetHandOver(d time.Duration) { c.handOver = d }

// The points of a run's start.
const (
	PointSubmitted, PointPlaced, PointStarted, PointBegun = pointSubmitted, pointPlaced, pointStarted, pointBegun
)

// LowerGeneration makes the coordinator's attempt numbers start lower.
func (c *Coordinator) LowerGeneration(by uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation -= by
}
