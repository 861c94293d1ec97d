package driver

import (
	"errors"
	"fmt"
	"strings"
)

// library is an open shared library with the functions that are asked of it.
type library struct {
	path      string
	functions []uintptr // in the order of the names
}

// openFirst opens the first of the candidates that can be opened and has all functions.
// The error lists every candidate with what was wrong with it.
func openFirst(what string, candidates, names []string) (*library, error) {
	if unavailable != "" {
		return nil, fmt.Errorf("%w: %s", ErrUnavailable, unavailable)
	}
	var tried []string
	for _, path := range candidates {
		l, err := openLibrary(path, names)
		if err == nil {
			return l, nil
		}
		tried = append(tried, "\n  "+path+": "+reason(path, err))
	}
	return nil, fmt.Errorf("%w: %s not found; looked for%s", ErrUnavailable, what, strings.Join(tried, ""))
}

func openLibrary(path string, names []string) (*library, error) {
	handle, err := open(path)
	if err != nil {
		return nil, err
	}
	l := &library{path: path, functions: make([]uintptr, len(names))}
	var missing []string
	for i, name := range names {
		if l.functions[i], err = find(handle, name); err != nil {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return nil, errors.New("it is too old or the wrong library: it lacks " + strings.Join(missing, ", "))
	}
	return l, nil
}

// reason is an error's text without the path that the loader puts in front.
func reason(path string, err error) string {
	return strings.TrimPrefix(err.Error(), path+": ")
}
