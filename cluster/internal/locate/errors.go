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

// Absent reports whether an error of dialing means that no process answered, as opposed to a refusal.
func Absent(err error) bool {
	var search *SearchError
	if errors.As(err, &search) {
		return search.Absent()
	}
	if errors.Is(err, transport.ErrRefused) {
		return false
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || // this includes errors of name lookups
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) // from a proxy, or from a coordinator that is stopping
}

// SearchError says why the coordinator was not found.
type SearchError struct {
	Of     string  // the URL that was looked up
	Lookup error   // nil: the lookup found addresses
	Tried  []error // one for each address
}

func (e *SearchError) Error() string {
	var why []string
	if e.Lookup != nil {
		why = append(why, e.Lookup.Error())
	}
	for _, err := range e.Tried {
		why = append(why, err.Error())
	}
	return fmt.Sprintf("no coordinator of this cluster found through %s: %s", e.Of, strings.Join(why, "; "))
}

func (e *SearchError) Unwrap() []error {
	if e.Lookup != nil {
		return append([]error{e.Lookup}, e.Tried...)
	}
	return e.Tried
}

// Absent reports whether another search may help. It may, unless every found address has refused: an
// address that does not answer may be out of date.
func (e *SearchError) Absent() bool {
	return e.Lookup != nil || slices.ContainsFunc(e.Tried, Absent)
}
