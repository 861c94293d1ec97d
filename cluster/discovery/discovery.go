package discovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// A Finder finds a coordinator. Its methods may be called concurrently.
type Finder interface {
	// Find returns the addresses at which the coordinator may be now, each as HOST:PORT, the most
	// likely first. It returns an error if it finds none. It returns soon after ctx ends.
	Find(ctx context.Context) ([]string, error)
	// Close releases the Finder's resources and ends calls of Find in progress.
	Close() error
}

// An Announcer is a Finder through which a coordinator can also publish its address.
type Announcer interface {
	Finder
	// Announce publishes the address of a cluster's coordinator, in place of any other, and keeps it
	// published until ctx ends. Then it removes the address, unless another coordinator of this
	// cluster has replaced it, and returns nil. After an error the address may no longer be
	// published; the caller calls Announce again after a while. cluster identifies the cluster and is
	// not a secret.
	Announce(ctx context.Context, cluster, address string) error
}

var (
	// ErrAddress: the text is not an address of a known scheme.
	ErrAddress = errors.New("not an address of a coordinator")
	// ErrNone: no coordinator was found.
	ErrNone = errors.New("no coordinator found")
	// ErrClosed: the Finder was closed.
	ErrClosed = errors.New("the search for the coordinator has ended")
)

// imports lists the packages of this repository that register schemes.
var imports = map[string]string{
	"dns":     "github.com/troupe-ml/troupe/cluster/discovery/dns",
	"dns+srv": "github.com/troupe-ml/troupe/cluster/discovery/dns",
	"etcd":    "github.com/troupe-ml/troupe/cluster/discovery/etcd",
}

var (
	mu      sync.Mutex
	schemes = make(map[string]func(*url.URL) (Finder, error))
)

// Register adds a scheme; call it in an init function. open makes a Finder for an address. It returns
// an error for an invalid address, and must not connect yet. The URL's Host is everything between
// "//" and the next "/", "?" or "#", as written; it may be a list. Register panics if the scheme is
// not a valid URL scheme in lower case or is already registered.
func Register(scheme string, open func(*url.URL) (Finder, error)) {
	mu.Lock()
	defer mu.Unlock()
	if !isScheme(scheme) || open == nil {
		panic(fmt.Sprintf("discovery: %q is not a valid scheme, or its open function is nil", scheme))
	}
	if schemes[scheme] != nil {
		panic(fmt.Sprintf("discovery: the scheme %q is registered twice", scheme))
	}
	schemes[scheme] = open
}

// Schemes lists the registered schemes, sorted.
func Schemes() []string {
	mu.Lock()
	defer mu.Unlock()
	return slices.Sorted(maps.Keys(schemes))
}

// HasScheme reports whether a text is a URL for Open, rather than a plain HOST:PORT.
func HasScheme(text string) bool { return strings.Contains(text, "://") }

// Open makes the Finder for an address with a scheme.
func Open(text string) (Finder, error) {
	u, err := parse(text)
	if err != nil {
		return nil, err
	}
	mu.Lock()
	open := schemes[u.Scheme]
	mu.Unlock()
	if open == nil {
		return nil, unknown(text, u.Scheme)
	}
	f, err := open(u)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrAddress, text, err)
	}
	return f, nil
}

// OpenAnnouncer makes the Announcer for an address with a scheme.
func OpenAnnouncer(text string) (Announcer, error) {
	if !HasScheme(text) {
		return nil, fmt.Errorf("%w: %.100q; announcing needs a service, such as etcd://HOST:2379", ErrAddress, text)
	}
	f, err := Open(text)
	if err != nil {
		return nil, err
	}
	if a, ok := f.(Announcer); ok {
		return a, nil
	}
	scheme, _, _ := strings.Cut(text, "://")
	return nil, errors.Join(fmt.Errorf("%w: %q; %s can find a coordinator but not announce one; use a service such as etcd://HOST:2379",
		ErrAddress,
		text, scheme), f.Close())
}

// unknown returns the error of an unknown scheme, with the known ones and how to add this one.
func unknown(text, scheme string) error {
	have := "only HOST:PORT"
	if all := Schemes(); len(all) > 0 {
		have = strings.Join(all, ", ") + ", and HOST:PORT"
	}
	how := "to add it, import a package that registers it (discovery.Register)"
	if path := imports[scheme]; path != "" {
		how = fmt.Sprintf("to add it, import _ %q", path)
	}
	return fmt.Errorf("%w: %q: unknown scheme %q; this program knows %s; %s", ErrAddress, text, scheme, have, how)
}

// parse splits an address. net/url would refuse a list of hosts.
func parse(text string) (*url.URL, error) {
	if len(text) > limitTextBytes {
		return nil, fmt.Errorf("%w: it has %d bytes; the limit is %d", ErrAddress, len(text), limitTextBytes)
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || !isScheme(scheme) {
		return nil, fmt.Errorf("%w: %.100q; want SCHEME://…, or HOST:PORT", ErrAddress, text)
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	hosts, rest := rest[:end], rest[end:]
	if strings.Contains(hosts, "@") {
		return nil,
			fmt.Errorf("%w: it has a user name before the @; leave user and password out, because other users can see them in the list of processes",
				ErrAddress)
	}
	u, err := url.Parse(scheme + "://host" + rest)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %.100q: %w", ErrAddress, text, errors.Unwrap(err))
	case hosts == "":
		return nil, fmt.Errorf("%w: %.100q: the host after %s:// is missing", ErrAddress, text, scheme)
	case u.Fragment != "":
		return nil, fmt.Errorf("%w: %.100q: remove the # and what follows it", ErrAddress, text)
	}
	u.Host = hosts
	return u, nil
}

// isScheme reports whether a text is a scheme in lower case.
func isScheme(s string) bool {
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return s != "" && len(s) <= 32
}
