//go:build linux && (amd64 || arm64) && !nocuda

package standin

import "github.com/ebitengine/purego"

// Library is the stand-in in this process, for tests to make trouble and to look at
// what is left.
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
	// Wrong adds so much to every element of cuBLASLt's products in float32, until Reset.
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
}

// What Refuse refuses.
const (
	RefuseAll  = 1 // when an algorithm is asked for
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
	} {
		purego.RegisterLibFunc(function, handle, name)
	}
	return l, nil
}
