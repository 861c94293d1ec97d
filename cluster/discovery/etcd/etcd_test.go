package etcd

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/cluster/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAddresses: an invalid address is refused before any query. The tests with a real etcd are in the folder test, a
// separate module.
func TestAddresses(t *testing.T) {
	dir := t.TempDir()
	empty, large := filepath.Join(dir, "empty.pem"), filepath.Join(dir, "large.pem")
	if err := errors.Join(os.WriteFile(empty, nil, 0o600), os.WriteFile(large, make([]byte, limitFileBytes+1), 0o600)); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"etcd://a:2379": "", "etcd://a:2379,[::1]:2379/some/prefix/": "",
		"etcd://a":      "want etcd://HOST:PORT",
		"etcd://a:1,/x": "the server is \"\"",
		"etcd://a:1" + strings.Repeat(",a:1", 16):     "17 servers",
		"etcd://a:1?tls=1":                            `unknown parameter "tls"`,
		"etcd://a:1?ca=x&ca=y":                        "give one file",
		"etcd://a:1?cert=x":                           "give both",
		"etcd://a:1?cert=x&key=y":                     "ca is missing",
		"etcd://a:1?ca=" + filepath.Join(dir, "none"): "no such file",
		"etcd://a:1?ca=" + empty:                      "contains no certificate",
		"etcd://a:1?ca=" + large:                      "more than 1048576 bytes",
	} {
		f, err := discovery.Open(text)
		if want == "" && err != nil || want != "" && (!errors.Is(err, discovery.ErrAddress) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
		if err == nil {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestNobodyAnswers: an etcd that accepts connections but doesn't answer delays neither Find beyond its context, nor Close.
func TestNobodyAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nobody was served
	f, err := discovery.Open("etcd://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.Find(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v; want %v", err, context.DeadlineExceeded)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Find(t.Context()); !errors.Is(err, discovery.ErrClosed) {
		t.Errorf("%v; want %v", err, discovery.ErrClosed)
	}
}
