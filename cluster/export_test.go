package cluster

import (
	"context"
	"time"

	"github.com/troupe-ml/troupe/checkpoint"
)

// SetFolderView gives a worker another view of paths.
func SetFolderView(view func(path string) string) { folderView = view }

// SetWriteOwn puts something around how a worker writes to a checkpoint.
func SetWriteOwn(write func(ctx context.Context, fsys checkpoint.FS, out string, step int, tag string, own []checkpoint.Own) ([]uint32,
	error)) {
	writeOwn = write
}

// SetAhead makes the worker's clock show another time than its system's does.
func (c *WorkerConfig) SetAhead(by time.Duration) { c.ahead = by }

// SetAtPoint has f called at the points of a run's beginning.
func (c *Config) SetAtPoint(f func(point string)) { c.atPoint = f }

// The points.
const (
	PointSubmitted, PointPlaced, PointStarted, PointBegun = pointSubmitted, pointPlaced, pointStarted, pointBegun
)

// LowerGeneration makes the coordinator number its attempts from below what it would.
func (c *Coordinator) LowerGeneration(by uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation -= by
}
