package cuda

import (
	"fmt"
	"slices"
	"sync"
)

// Work counts what a device has launched, and how. Operations of a graph count once, when the graph
// is created.
type Work struct {
	LibraryProducts int64 `json:"library_products"`    // products of cuBLASLt
	LibraryGELUs    int64 `json:"library_gelus"`       // of these, with a GELU
	LibrarySums     int64 `json:"library_column_sums"` // of these, with column sums
	KernelProducts  int64 `json:"kernel_products"`     // products of the device's own kernels
	// the forms among these for which cuBLASLt exists but has no algorithm, at most limitFallen of
	// them
	Fallen       []string `json:"fallen,omitempty"`
	Graphs       int64    `json:"graphs"`                // created graphs
	FailedGraphs int64    `json:"failed_graphs"`         // captures that failed: their segments were launched kernel by kernel
	GraphError   string   `json:"graph_error,omitempty"` // error of the last failed graph
}

// limitFallen bounds the forms of products that a device lists as no library's.
const limitFallen = 64

// work counts for all streams of a device.
type work struct {
	mu     sync.Mutex
	is     Work
	warn   func(text string) // nil: nobody is told yet
	untold []string          // until somebody is
	said   int
}

// limitWarnings bounds what a device says: the counts go on.
const limitWarnings = 8

// count changes the counts.
func (w *work) count(change func(*Work)) {
	w.mu.Lock()
	change(&w.is)
	w.mu.Unlock()
}

// fell counts a product that the library has no algorithm for.
func (w *work) fell(form string) {
	w.count(func(is *Work) {
		if len(is.Fallen) < limitFallen && !slices.Contains(is.Fallen, form) {
			is.Fallen = append(is.Fallen, form)
		}
	})
}

// say keeps a warning until tell is called: the owner's thread must not wait for whoever
// listens.
func (w *work) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.said < limitWarnings {
		w.said++
		w.untold = append(w.untold, fmt.Sprintf(format, args...))
	}
}

// tell warns whoever wants to hear.
func (w *work) tell() {
	w.mu.Lock()
	warn := w.warn
	var untold []string
	if warn != nil {
		untold, w.untold = w.untold, nil
	}
	w.mu.Unlock()
	for _, text := range untold {
		warn(text)
	}
}

// Work returns what the device has done so far.
func (d *Device) Work() Work {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	is := d.work.is
	is.Fallen = slices.Clone(is.Fallen)
	return is
}

// OnWarning sets a function for warnings about work that is done in another way than intended,
// including earlier warnings. It is called from OnWarning, and from the goroutines of streams.
func (d *Device) OnWarning(warn func(text string)) {
	d.work.mu.Lock()
	d.work.warn = warn
	d.work.mu.Unlock()
	d.work.tell()
}
