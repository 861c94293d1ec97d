package registry

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

var (
	mu    sync.Mutex
	names []string // of everything, with its kind: "schedule mine"
)

var word = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// Set holds the registered things of one kind. Its methods may be called at any time.
type Set[T any] struct {
	kind  string
	taken []string // names of what is built in

	mu    sync.RWMutex
	names []string // sorted
	of    map[string]T
}

// New makes the set of a kind. Nothing registered may have a name of what is built in.
func New[T any](kind string, builtIn ...string) *Set[T] {
	if !word.MatchString(kind) {
		panic(fmt.Sprintf("registry: kind %.100q is not a plain lower-case word", kind))
	}
	return &Set[T]{kind: kind, taken: builtIn, of: make(map[string]T)}
}

// Add registers a thing. It panics if the name is not a plain lower-case word of at most
// MaxNameBytes (letters, digits, - and _, a letter or digit first), or is taken.
func (s *Set[T]) Add(name string, thing T) {
	if !word.MatchString(name) || len(name) > MaxNameBytes {
		panic(fmt.Sprintf("%s %.100q can't be registered: its name must be a lower-case word of letters, digits, - and _, a letter or digit first, of at most %d bytes", s.kind, name, MaxNameBytes))
	}
	if slices.Contains(s.taken, name) {
		panic(fmt.Sprintf("%s %q can't be registered: one that is built in has this name", s.kind, name))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.of[name]; there {
		panic(fmt.Sprintf("%s %q is registered twice", s.kind, name))
	}
	mu.Lock()
	defer mu.Unlock()
	if entry := s.kind + " " + name; !slices.Contains(names, entry) { // tests have several sets of a kind
		if len(names) >= MaxNames {
			panic(fmt.Sprintf("%s %q can't be registered: the program has registered %d things, the limit", s.kind, name, MaxNames))
		}
		names = append(names, entry)
		slices.Sort(names)
	}
	s.of[name] = thing
	s.names = append(s.names, name)
	slices.Sort(s.names)
}

// Get returns what has a name.
func (s *Set[T]) Get(name string) (thing T, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	thing, ok = s.of[name]
	return thing, ok
}

// Names lists the names, sorted.
func (s *Set[T]) Names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.names)
}

// Names lists everything that this program has registered, sorted, each as its kind and
// its name: "schedule mine".
func Names() []string {
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(names)
}

// Check looks at a list that comes from another process.
func Check(list []string) error {
	if len(list) > MaxNames {
		return fmt.Errorf("%d registered things; the limit is %d", len(list), MaxNames)
	}
	for _, entry := range list {
		kind, name, ok := strings.Cut(entry, " ")
		if !ok || len(kind) > MaxNameBytes || len(name) > MaxNameBytes || !word.MatchString(kind) || !word.MatchString(name) {
			return fmt.Errorf("%.100q is not the name of a registered thing", entry)
		}
	}
	return nil
}

// Missing returns what is in want and not in have.
func Missing(have, want []string) []string {
	var missing []string
	for _, entry := range want {
		if !slices.Contains(have, entry) {
			missing = append(missing, entry)
		}
	}
	return missing
}

// List writes names for a message: the first ones, and how many more.
func List(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	text := strings.Join(list[:min(len(list), maxListed)], ", ")
	if more := len(list) - maxListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
