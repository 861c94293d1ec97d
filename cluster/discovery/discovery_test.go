package discovery

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// plain finds what the address itself says.
type plain struct{ host string }

func (p plain) Find(context.Context) ([]string, error) { return []string{p.host}, nil }
func (plain) Close() error                             { return nil }

type announcing struct{ plain }

func (announcing) Announce(context.Context, string, string) error { return nil }

func init() {
	Register("plain", func(u *url.URL) (Finder, error) {
		if u.Host == "bad" {
			return nil, errors.New("no such host")
		}
		return plain{u.Host}, nil
	})
	Register("announcing+x", func(u *url.URL) (Finder, error) { return announcing{plain{u.Host}}, nil })
}

func TestOpen(t *testing.T) {
	for _, c := range []struct{ text, host, want string }{
		{text: "plain://a:1", host: "a:1"},
		{text: "plain://a:1,b:2/prefix?x=y", host: "a:1,b:2"},
		{text: "plain://_troupe._tcp.a.b", host: "_troupe._tcp.a.b"},
		{text: "plain://[::1]:7", host: "[::1]:7"},
		{text: "plain://bad", want: "no such host"},
		{text: "plain://", want: "the host after plain:// is missing"},
		{text: "plain:///a", want: "the host after"},
		{text: "plain://user:secret@a:1", want: "leave user and password out"},
		{text: "plain://a#b", want: "remove the # and what follows it"},
		{text: "plain://a/%zz", want: "invalid URL escape"},
		{text: "a:1", want: "HOST:PORT"},
		{text: "PLAIN://a", want: "want SCHEME://"},
		{text: "://a", want: "want SCHEME://"},
		{text: "other://a", want: "knows announcing+x, plain, and HOST:PORT; to add it, import a package that registers it"},
		{text: "etcd://a", want: `to add it, import _ "github.com/troupe-ml/troupe/cluster/discovery/etcd"`},
		{text: "dns+srv://a", want: `to add it, import _ "github.com/troupe-ml/troupe/cluster/discovery/dns"`},
		{text: "plain://" + strings.Repeat("a", limitTextBytes), want: "the limit is 4096"},
	} {
		f, err := Open(c.text)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%.50q: %v", c.text, err)
		case c.want == "":
			if got := f.(plain).host; got != c.host {
				t.Errorf("%q: the host is %q; want %q", c.text, got, c.host)
			}
		case !errors.Is(err, ErrAddress) || !strings.Contains(err.Error(), c.want):
			t.Errorf("%.50q: %v; want %q", c.text, err, c.want)
		case strings.Contains(err.Error(), "secret"):
			t.Errorf("%v: it shows the password", err)
		}
	}
}

func TestOpenAnnouncer(t *testing.T) {
	for text, want := range map[string]string{"announcing+x://a": "", "plain://a": "but not announce one", "a:1": "needs a service",
		"etcd://a": "to add it"} {
		_, err := OpenAnnouncer(text)
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrAddress) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

func TestRegister(t *testing.T) {
	open := func(*url.URL) (Finder, error) { return plain{}, nil }
	for _, scheme := range []string{"plain", "", "A", "a b", "1a", strings.Repeat("a", 33)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q may be registered", scheme)
				}
			}()
			Register(scheme, open)
		}()
	}
	if got := Schemes(); !slices.Equal(got, []string{"announcing+x", "plain"}) {
		t.Error(got)
	}
}

// FuzzOpen: an address is refused, or accepted with its hosts unchanged.
func FuzzOpen(f *testing.F) {
	for _, s := range []string{"plain://a:1,b:2/p?x=y", "etcd://a", "plain://[::1]:7/", "a:1", "plain://a@b", "plain://a/%zz#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		found, err := Open(text)
		switch {
		case err != nil && !errors.Is(err, ErrAddress):
			t.Fatal(err)
		case err != nil:
			return
		}
		if p, ok := found.(plain); ok && !strings.HasPrefix(text, "plain://"+p.host) {
			t.Fatalf("%q is not the host of %q", p.host, text)
		}
	})
}
