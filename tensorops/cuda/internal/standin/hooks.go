//go:build linux && (amd64 || arm64) && !nocuda

package standin

import "github.com/ebitengine/purego"

// Library is this process's stand-in, with which tests cause failures and check for leaks.
type Library struct {
	// Fail makes the n-th call from now of a function, counted from 1, return a code once.
	// The function "task" is whatever a stream does: failing it breaks the context.
	Fail func(function string, n, code int32)
	// Reset clears all that is set, and ends the contexts that there are.
	Reset func()
	// Delay lets every task of a stream wait for a random time up to n microseconds.
	Delay func(microseconds int32)
	// Memory sets how much each device has.
	Memory func(bytes uintptr)
	// Refuse lets cuBLASLt have no algorithm: RefuseAll, RefuseGELU, RefuseLate or RefuseSums; 0
	// takes it back.
	Refuse func(what int32)
	// Wrong adds a number to every element of cuBLASLt's float32 products, until Reset.
	Wrong func(by float32)
	// Left counts what the devices' last contexts still had of a kind at their ends: memory,
	// pinned, streams, events, modules or graphs; and what there is of contexts, programs and
	// cuBLASLt's descriptors.
	Left func(kind string) int64
	// Calls counts the calls of a function so far.
	Calls func(function string) int64
	// CheckMMA counts what is wrong with the emulation of the tensor cores' instruction.
	CheckMMA func() int32
	// CheckLDMatrix counts what is wrong with that of the loads of matrices, CheckCopies with
	// that of copies beside the computing.
	CheckLDMatrix func() int32
	CheckCopies   func() int32
	// Message says why a context has failed.
	Message func() string

	// Hollow lets streams do nothing and device memory be none, so that a model of any size has
	// room: what is copied from the device is zeros. To be said before there is a device.
	Hollow func(on int32)
	// Processors sets how many multiprocessors the device has.
	Processors func(n int32)
	// Slow makes the device slower than the host: it runs the work of streams only when the host
	// waits for it and has made no call for quietUS microseconds. 0: full speed.
	Slow func(quietUS int32)
	// Most is the most bytes at a time since the log was begun, of "memory" or "pinned".
	Most func(what string) int64
	// LogBegin begins a log of what streams are given. Log takes what it has.
	LogBegin func()

	logSize  func() uintptr
	logTake  func(to *uint64, words uintptr) uintptr
	kernel   func(kernel uint64) string
	runs     func(launch uint64, stored int32) uintptr
	takeRuns func(launch uint64, stored int32, to *uint64)
}

// Log takes the words that the log has by now, and Kernel is the name of a kernel in it:
// package count reads them.
func (l *Library) Log() []uint64 {
	words := make([]uint64, l.logSize())
	if len(words) == 0 {
		return nil
	}
	return words[:l.logTake(&words[0], uintptr(len(words)))]
}

// Kernel is the name of a kernel in the log.
func (l *Library) Kernel(kernel uint64) string { return l.kernel(kernel) }

// Run are bytes of device memory that a launch has loaded, or stored, equally often.
type Run struct{ At, Bytes, Times uint64 }

// Touched are the bytes that a launch of the log has loaded and stored, in ascending order. It
// can be asked once, of a library that BuildWatching has made.
func (l *Library) Touched(launch uint64) (loaded, stored []Run) {
	for i, to := range []*[]Run{&loaded, &stored} {
		if n := l.runs(launch, int32(i)); n > 0 {
			*to = make([]Run, n)
			l.takeRuns(launch, int32(i), &(*to)[0].At)
		}
	}
	return loaded, stored
}

// What Refuse refuses.
const (
	RefuseAll  = 1 // when an algorithm is requested
	RefuseGELU = 2 // those with a GELU
	RefuseLate = 3 // when they are run
	RefuseSums = 4 // those with column sums
)

// Kinds are those that Left counts.
var Kinds = []string{"contexts", "memory", "pinned", "streams", "events", "modules", "graphs", "programs", "descriptors"}

// Open opens what Build has built. The process has one stand-in however often that is done.
func Open(path string) (*Library, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, err
	}
	l := &Library{}
	for name, function := range map[string]any{
		"troupe_standin_fail":      &l.Fail,
		"troupe_standin_reset":     &l.Reset,
		"troupe_standin_delay":     &l.Delay,
		"troupe_standin_memory":    &l.Memory,
		"troupe_standin_refuse":    &l.Refuse,
		"troupe_standin_left":      &l.Left,
		"troupe_standin_wrong":     &l.Wrong,
		"troupe_standin_calls":     &l.Calls,
		"troupe_standin_check_mma": &l.CheckMMA,
		"troupe_standin_message":   &l.Message,

		"troupe_standin_check_ldmatrix": &l.CheckLDMatrix,
		"troupe_standin_check_copies":   &l.CheckCopies,
		"troupe_standin_hollow":         &l.Hollow,
		"troupe_standin_processors":     &l.Processors,
		"troupe_standin_slow":           &l.Slow,
		"troupe_standin_most":           &l.Most,
		"troupe_standin_log_begin":      &l.LogBegin,
		"troupe_standin_log_size":       &l.logSize,
		"troupe_standin_log_take":       &l.logTake,
		"troupe_standin_kernel":         &l.kernel,
	} {
		purego.RegisterLibFunc(function, handle, name)
	}
	// Of a library that watches.
	for name, function := range map[string]any{"troupe_standin_runs": &l.runs, "troupe_standin_take_runs": &l.takeRuns} {
		if _, err := purego.Dlsym(handle, name); err == nil {
			purego.RegisterLibFunc(function, handle, name)
		}
	}
	return l, nil
}
