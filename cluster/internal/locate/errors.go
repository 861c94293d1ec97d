package locate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
)

// Absent reports whether an error of dialling says that nobody has answered, in contrast to a no.
func Absent(err error) bool {
	var search *SearchError
	if errors.As(err, &search) {
		return search.Absent()
	}
	if errors.Is(err, transport.ErrRefused) {
		return false
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || // with errors of names
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) // of a proxy, or one that is about to end
}

// SearchError says why the coordinator was not found.
type SearchError struct {
	Of     string
	Lookup error   // nil: something was found
	Tried  []error // of each address
}

func (e *SearchError) Error() string {
	var why []string
	if e.Lookup != nil {
		why = append(why, e.Lookup.Error())
	}
	for _, err := range e.Tried {
		why = append(why, err.Error())
	}
	return fmt.Sprintf("no coordinator of this cluster was found by %s: %s", e.Of, strings.Join(why, "; "))
}

func (e *SearchError) Unwrap() []error {
	if e.Lookup != nil {
		return append([]error{e.Lookup}, e.Tried...)
	}
	return e.Tried
}

// Absent reports whether looking again may help: whoever was found that is not the right one
// may be what is left of another time. When every address has said no, it does not.
func (e *SearchError) Absent() bool {
	return e.Lookup != nil || slices.ContainsFunc(e.Tried, Absent)
}
