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

// A Finder finds a coordinator. Its methods may be called at the same time.
type Finder interface {
	// Find returns where the coordinator may be now, each address as HOST:PORT, the likeliest
	// first. Where there is none that is an error. It ends soon after ctx does.
	Find(ctx context.Context) ([]string, error)
	// Close ends what the Finder keeps open, and Finds that have not returned.
	Close() error
}

// An Announcer is a Finder by which a coordinator can make itself known.
type Announcer interface {
	Finder
	// Announce makes an address known as that of a cluster's coordinator, in place of any
	// other, and keeps it known until ctx ends; then it removes it, unless another
	// coordinator of this cluster has taken its place, and returns nil. An error says that the
	// address is not known any more, or may not be: the caller calls again after a while.
	// cluster is a word that tells clusters apart, and no secret.
	Announce(ctx context.Context, cluster, address string) error
}

var (
	// ErrAddress is a text that is no address of a known scheme.
	ErrAddress = errors.New("not an address by which a coordinator is found")
	// ErrNone: nothing was found.
	ErrNone = errors.New("no coordinator is known")
	// ErrClosed: the Finder was closed.
	ErrClosed = errors.New("the search for the coordinator has ended")
)

// imports are the packages that register the schemes of this repository.
var imports = map[string]string{
	"dns":     "github.com/troupe-ml/troupe/cluster/discovery/dns",
	"dns+srv": "github.com/troupe-ml/troupe/cluster/discovery/dns",
	"etcd":    "github.com/troupe-ml/troupe/cluster/discovery/etcd",
}

var (
	mu      sync.Mutex
	schemes = make(map[string]func(*url.URL) (Finder, error))
)

// Register adds a scheme; an init function calls it. open makes a Finder of an address: it
// returns an error for one that can't be meant, and connects to nothing yet. The URL's Host is
// everything between "//" and the next "/", "?" or "#", as it was written: it may be a list. A
// scheme that is not a URL's in lower case, or that is there already, is a panic.
func Register(scheme string, open func(*url.URL) (Finder, error)) {
	mu.Lock()
	defer mu.Unlock()
	if !isScheme(scheme) || open == nil {
		panic(fmt.Sprintf("discovery: %q is no scheme, or has no function", scheme))
	}
	if schemes[scheme] != nil {
		panic(fmt.Sprintf("discovery: the scheme %q is registered twice", scheme))
	}
	schemes[scheme] = open
}

// Schemes are those that this program knows.
func Schemes() []string {
	mu.Lock()
	defer mu.Unlock()
	return slices.Sorted(maps.Keys(schemes))
}

// HasScheme reports whether a text is for Open, and not a plain HOST:PORT.
func HasScheme(text string) bool { return strings.Contains(text, "://") }

// Open makes the Finder of an address with a scheme.
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

// OpenAnnouncer makes the Announcer of an address with a scheme.
func OpenAnnouncer(text string) (Announcer, error) {
	if !HasScheme(text) {
		return nil, fmt.Errorf("%w: %.100q; to be announced a coordinator needs a service, such as etcd://HOST:2379", ErrAddress, text)
	}
	f, err := Open(text)
	if err != nil {
		return nil, err
	}
	if a, ok := f.(Announcer); ok {
		return a, nil
	}
	scheme, _, _ := strings.Cut(text, "://")
	return nil, errors.Join(fmt.Errorf("%w: %q; %s finds what others have made known, and can't announce a coordinator itself", ErrAddress,
		text, scheme), f.Close())
}

// unknown says which schemes there are, and how this one could be.
func unknown(text, scheme string) error {
	have := "HOST:PORT alone"
	if all := Schemes(); len(all) > 0 {
		have = strings.Join(all, ", ") + ", and HOST:PORT"
	}
	how := "a package that registers it (discovery.Register) adds it"
	if path := imports[scheme]; path != "" {
		how = fmt.Sprintf("import _ %q adds it", path)
	}
	return fmt.Errorf("%w: %q: the scheme %q is not one that this program has: it knows %s; %s", ErrAddress, text, scheme, have, how)
}

// parse takes an address apart. net/url would refuse a list of hosts.
func parse(text string) (*url.URL, error) {
	if len(text) > limitTextBytes {
		return nil, fmt.Errorf("%w: it has %d bytes; at most %d are taken", ErrAddress, len(text), limitTextBytes)
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
			fmt.Errorf("%w: it has a user before the @, and perhaps a password, which others see in the list of processes; leave them out",
				ErrAddress)
	}
	u, err := url.Parse(scheme + "://host" + rest)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %.100q: %w", ErrAddress, text, errors.Unwrap(err))
	case hosts == "":
		return nil, fmt.Errorf("%w: %.100q: there is no host after %s://", ErrAddress, text, scheme)
	case u.Fragment != "":
		return nil, fmt.Errorf("%w: %.100q: nothing may follow a #", ErrAddress, text)
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
