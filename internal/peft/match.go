package peft

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/stages"
)

// selector is target_modules or exclude_modules: names, or a regular expression for whole names.
type selector struct {
	all   bool // all-linear
	names map[string]bool
	list  []string
	whole *regexp.Regexp
}

func (s *selector) none() bool { return !s.all && s.names == nil && s.whole == nil }

func (s *selector) read(v json.RawMessage) error {
	var pattern string
	if json.Unmarshal(v, &pattern) == nil {
		if s.all = pattern == stages.AllLinear; s.all {
			return nil
		}
		var err error
		s.whole, err = compile("^(?:" + pattern + ")$")
		return err
	}
	if json.Unmarshal(v, &s.list) != nil || len(s.list) > maxNames {
		return fmt.Errorf("it must be a text or a list of at most %d names", maxNames)
	}
	if len(s.list) == 0 {
		return nil
	}
	s.names = make(map[string]bool)
	for _, name := range s.list {
		s.names[name] = true
	}
	return nil
}

// selects reports whether a module is selected: by its whole name, or by its last parts.
func (s *selector) selects(module string) bool {
	if s.whole != nil {
		return s.whole.MatchString(module)
	}
	for end := range ends(module) {
		if s.names[end] {
			return true
		}
	}
	return false
}

// ends yields a name and what is left of it after each dot.
func ends(name string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for more := true; more; _, name, more = strings.Cut(name, ".") {
			if !yield(name) {
				return
			}
		}
	}
}

// targeted reports whether PEFT gives a module an adapter (BaseTuner._check_target_module_exists).
func (s *settings) targeted(module string) bool {
	switch {
	case !s.excluded.none() && s.excluded.selects(module):
		return false
	case s.targets.all:
		return module != "lm_head"
	case !s.targets.selects(module):
		return false
	}
	if s.layers == nil || s.targets.whole != nil || s.targets.names[module] {
		return true
	}
	layer, ok := layerOf(module, s.layersNames)
	if !ok {
		return false
	}
	for _, i := range s.layers {
		if i == layer {
			return true
		}
	}
	return false
}

// layerOf returns the number of a module's layer: the last number that follows one of the names, or any name without names.
func layerOf(module string, names []string) (layer int, ok bool) {
	parts := strings.Split(module, ".")
	for i := len(parts) - 2; i >= 1; i-- {
		n, err := strconv.Atoi(parts[i])
		if err != nil || n < 0 {
			continue
		}
		if len(names) == 0 {
			return n, true
		}
		for _, name := range names {
			if parts[i-1] == name {
				return n, true
			}
		}
	}
	return 0, false
}

// patterns is rank_pattern or alpha_pattern: values by the last parts of a module's name, or by a regular expression for them. The
// first that matches counts (PEFT's get_pattern_key).
type patterns[T any] struct {
	values []T
	byName map[string]int // index in values
	exprs  []expression
}

type expression struct {
	of    *regexp.Regexp
	index int
}

// plain matches names that mean themselves; the dot is one between modules.
var plain = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

func (p *patterns[T]) reader(value func(json.RawMessage) (T, error)) func(json.RawMessage) error {
	return func(v json.RawMessage) error {
		return members(v, func(key string, v json.RawMessage) error {
			one, err := value(v)
			if err != nil {
				return fmt.Errorf("%s: %w", strictjson.Quote(key), err)
			}
			index := len(p.values)
			switch {
			case index == maxNames:
				return fmt.Errorf("there are more than %d patterns", maxNames)
			case plain.MatchString(key):
				if p.byName == nil {
					p.byName = make(map[string]int)
				}
				p.byName[key] = index
			default:
				of, err := compile(`^(?:.*\.)?(?:` + key + ")$")
				if err != nil {
					return err
				}
				if len(p.exprs) == maxPatterns {
					return fmt.Errorf("there are more than %d regular expressions", maxPatterns)
				}
				p.exprs = append(p.exprs, expression{of, index})
			}
			p.values = append(p.values, one)
			return nil
		})
	}
}

// of returns a module's value.
func (p *patterns[T]) of(module string, otherwise T) T {
	first := len(p.values)
	for end := range ends(module) {
		if i, ok := p.byName[end]; ok {
			first = min(first, i)
		}
	}
	for _, e := range p.exprs {
		if e.index < first && e.of.MatchString(module) {
			first = e.index
		}
	}
	if first == len(p.values) {
		return otherwise
	}
	return p.values[first]
}

// compile compiles a regular expression, which must have the same meaning in Python and Go.
func compile(pattern string) (*regexp.Regexp, error) {
	of, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("this regular expression cannot be read (%s): list the names of the modules instead",
			strictjson.Plain(err.Error()))
	}
	return of, nil
}
