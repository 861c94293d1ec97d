package cluster

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/registry"
	"github.com/troupe-ml/troupe/internal/wire"
)

// sameRegistered compares the names that a worker's program has registered with this program's.
// Both sides see the error.
func sameRegistered(offer *wire.Offer) error {
	theirs, ours := offer.GetRegistered(), registry.Names()
	if err := registry.Check(theirs); err != nil {
		return fmt.Errorf("names registered by the worker's program: %w", err)
	}
	var differ []string
	if missing := registry.Missing(theirs, ours); len(missing) > 0 {
		differ = append(differ, fmt.Sprintf("the worker's program has not registered %s; the coordinator's has", registry.List(missing)))
	}
	if more := registry.Missing(ours, theirs); len(more) > 0 {
		differ = append(differ, fmt.Sprintf("the worker's program has registered %s; the coordinator's has not", registry.List(more)))
	}
	if len(differ) > 0 {
		return errors.New(strings.Join(differ, "; "))
	}
	return nil
}

// parseSubmitted parses a config from a client. Its paths are on this process's host; env looks up
// environment variables. A name that only the client's program has registered gets its own hint.
func parseSubmitted(file string, text []byte, sets, registered []string, env func(string) (string, bool)) (*config.Config, error) {
	if err := registry.Check(registered); err != nil {
		return nil, fmt.Errorf("%w: names registered by the client's program: %w", ErrRequest, err)
	}
	cfg, err := config.Parse(file, text, sets, env)
	if err == nil {
		return cfg, nil
	}
	var all config.Errors
	if errors.As(err, &all) {
		for _, e := range all {
			if _, name, ok := strings.Cut(e.Msg, "the environment variable "); ok {
				name, _, _ = strings.Cut(name, " ")
				e.Hint = fmt.Sprintf("set %s where you submit the run, give a default (${%s:-text}), or start the coordinator with --env %s to let submissions use its own value", name, name, name)
			}
		}
		for _, thing := range registry.Missing(registry.Names(), registered) {
			_, name, _ := strings.Cut(thing, " ")
			for _, e := range all {
				if strings.Contains(e.Msg, strconv.Quote(name)) {
					e.Hint = fmt.Sprintf("your program has registered %s; the coordinator's has not (it has registered %s). Use the same program for both",
						thing, registry.List(registry.Names()))
				}
			}
		}
	}
	return nil, &troupe.SetupError{Err: err}
}
