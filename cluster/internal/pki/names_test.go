package pki_test

import (
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
)

// joiner asks an authority for certificates.
type joiner struct {
	t *testing.T
	a func() *pki.Authority
}

func (j joiner) join(token pki.Token, name string, kept bool, inUse error, now time.Time) (*x509.Certificate, error) {
	j.t.Helper()
	_, csr, err := pki.NewRequest(pki.Identity{Name: name, Role: token.Role})
	if err != nil {
		j.t.Fatal(err)
	}
	der, _, err := j.a().Join(pki.Joining{TokenID: token.ID, Secret: token.Secret[:], CSR: csr, Name: name, Kept: kept,
		InUse: func(string) error { return inUse }}, now)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		j.t.Fatal(err)
	}
	return cert, nil
}

func (j joiner) renew(cert *x509.Certificate, now time.Time) (*x509.Certificate, error) {
	j.t.Helper()
	_, csr, err := pki.NewRequest(worker)
	if err != nil {
		j.t.Fatal(err)
	}
	der, err := j.a().Renew(cert, csr, now)
	if err != nil {
		return nil, err
	}
	renewed, err := x509.ParseCertificate(der)
	if err != nil {
		j.t.Fatal(err)
	}
	return renewed, nil
}

// TestNames: a worker's name belongs to the first key that joined with it.
func TestNames(t *testing.T) {
	authorities(t, func(t *testing.T, _ *pki.Authority, again func() *pki.Authority) {
		j := joiner{t, again}
		now := time.Now()
		one := newToken(t, again(), pki.Worker)
		two, err := again().NewToken(pki.Worker, 100*time.Hour, now)
		if err != nil {
			t.Fatal(err)
		}
		operator := newToken(t, again(), pki.Operator)
		there := errors.New("it is there")
		for _, c := range []struct {
			name  string
			kept  bool // by the first
			token pki.Token
			inUse error
			later time.Duration
			want  error
		}{
			{"in-use", false, one, there, 0, pki.ErrNameInUse},
			{"in-use-kept", true, one, there, 0, pki.ErrNameInUse},
			{"gone", false, two, nil, 0, nil},
			{"gone-kept", true, two, nil, 0, pki.ErrNameHeld},
			{"gone-kept-same-token", true, one, nil, 0, nil},
			{"gone-kept-a-day", true, two, nil, 23 * time.Hour, pki.ErrNameHeld},
			{"expired", true, two, nil, 25 * time.Hour, nil},
		} {
			first, err := j.join(one, c.name, c.kept, nil, now)
			if err != nil {
				t.Fatal(err)
			}
			second, err := j.join(c.token, c.name, false, c.inUse, now.Add(c.later))
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
			// One of the two counts, and never both.
			if err := again().Accepts(first); (err == nil) != (c.want != nil) {
				t.Errorf("%s: the first one's certificate: %v", c.name, err)
			}
			if c.want == nil && second != nil {
				if err := again().Accepts(second); err != nil {
					t.Errorf("%s: the second one's certificate: %v", c.name, err)
				}
				if _, err := j.renew(first, now); err == nil {
					t.Errorf("%s: the first one's certificate was renewed", c.name)
				}
			}
		}
		// Names of operators are labels: each of their commands has a key of its own.
		for range 2 {
			if _, err := j.join(operator, "person", false, there, now); err != nil {
				t.Error(err)
			}
		}
		// Wrong tokens are refused before anything is said of names.
		wrong := one
		wrong.Secret[0] ^= 1
		if _, err := j.join(wrong, "gone-kept", false, there, now); !errors.Is(err, pki.ErrTokenUnknown) {
			t.Errorf("a wrong token: %v", err)
		}
	})
}

// TestRenewAndRelease: during a renewal both keys are valid; another key can get a released name.
func TestRenewAndRelease(t *testing.T) {
	authorities(t, func(t *testing.T, _ *pki.Authority, again func() *pki.Authority) {
		j := joiner{t, again}
		now := time.Now()
		one, two := newToken(t, again(), pki.Worker), newToken(t, again(), pki.Worker)
		first, err := j.join(one, "a", true, nil, now)
		if err != nil {
			t.Fatal(err)
		}
		lost, err := j.renew(first, now) // whose answer never comes
		if err != nil {
			t.Fatal(err)
		}
		second, err := j.renew(first, now)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			cert *x509.Certificate
			ok   bool
		}{"the one that was shown": {first, true}, "the new one": {second, true}, "the one that was lost": {lost, false}} {
			if err := again().Accepts(c.cert); (err == nil) != c.ok {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := again().Names(); len(got) != 1 || got[0].Name != "a" || got[0].Token != one.ID {
			t.Errorf("names %+v", got)
		}
		if err := again().Release("a"); err != nil {
			t.Fatal(err)
		}
		if err := again().Release("a"); !errors.Is(err, pki.ErrNameUnknown) {
			t.Errorf("released twice: %v", err)
		}
		if err := again().Accepts(second); !errors.Is(err, pki.ErrNameHeld) {
			t.Errorf("the certificate of a name that was released: %v", err)
		}
		if _, err := j.join(two, "a", false, nil, now); err != nil {
			t.Errorf("another key: %v", err)
		}
	})
}

// TestRevokeEnds: revoking a token makes its certificates invalid, and they are not renewed, even if the token expired long
// before. Other certificates stay valid.
func TestRevokeEnds(t *testing.T) {
	authorities(t, func(t *testing.T, _ *pki.Authority, again func() *pki.Authority) {
		j := joiner{t, again}
		now := time.Now()
		for _, role := range []pki.Role{pki.Worker, pki.Operator, pki.Viewer} {
			ends, stays := newToken(t, again(), role), newToken(t, again(), role)
			cert, err := j.join(ends, "ends-"+string(role), true, nil, now)
			if err != nil {
				t.Fatal(err)
			}
			other, err := j.join(stays, "stays-"+string(role), true, nil, now)
			if err != nil {
				t.Fatal(err)
			}
			for day := range 40 { // it goes on for longer than its token is listed
				at := now.Add(time.Duration(day) * 20 * time.Hour)
				if cert, err = j.renew(cert, at); err != nil {
					t.Fatal(err)
				}
				if other, err = j.renew(other, at); err != nil {
					t.Fatal(err)
				}
			}
			late := now.Add(40 * 20 * time.Hour)
			if _, err := again().NewToken(role, time.Hour, late); err != nil { // which forgets those that have expired
				t.Fatal(err)
			}
			if !slices.ContainsFunc(again().Tokens(), func(i pki.TokenInfo) bool { return i.ID == ends.ID }) {
				t.Error("the token is not listed any more, and there are certificates by it")
			}
			if err := again().Revoke(ends.ID); err != nil {
				t.Fatal(err)
			}
			if err := again().Accepts(cert); !errors.Is(err, pki.ErrTokenRevoked) {
				t.Errorf("the %s's certificate: %v", role, err)
			}
			if _, err := j.renew(cert, late); !errors.Is(err, pki.ErrTokenRevoked) {
				t.Errorf("the %s's certificate is renewed: %v", role, err)
			}
			if err := again().Accepts(other); err != nil {
				t.Errorf("the other %s's certificate: %v", role, err)
			}
		}
	})
}

// TestNoTokenBehind: a certificate without a token or with an unknown one is refused.
func TestNoTokenBehind(t *testing.T) {
	a := newAuthority(t)
	cert, err := x509.ParseCertificate(issue(t, a, worker).Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Accepts(cert); !errors.Is(err, pki.ErrTokenUnknown) {
		t.Errorf("no token: %v", err)
	}
	own, err := x509.ParseCertificate(issue(t, a, coordinator).Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Accepts(own); err != nil {
		t.Errorf("the coordinator's own: %v", err)
	}
}

// TestIssuedDamaged: with a damaged list of issued certificates, every certificate is refused.
func TestIssuedDamaged(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":       `x`,
		"another key":   `{"version":1,"tokens":[],"names":[],"more":1}`,
		"no names":      `{"version":1,"tokens":[]}`,
		"a version":     `{"version":2,"tokens":[],"names":[]}`,
		"not revoked":   `{"version":1,"tokens":[{"id":"0123456789abcdef","role":"worker","until":"2000-01-01T00:00:00Z"}],"names":[]}`,
		"misspelt":      `{"version":1,"tokens":[{"id":"0123456789abcdef","role":"worker","revokd":true,"until":"2000-01-01T00:00:00Z"}],"names":[]}`,
		"no keys":       `{"version":1,"tokens":[],"names":[{"name":"a","token":"","kept":true,"keys":[],"until":"2000-01-01T00:00:00Z"}]}`,
		"a short key":   `{"version":1,"tokens":[],"names":[{"name":"a","token":"","kept":true,"keys":["00"],"until":"2000-01-01T00:00:00Z"}]}`,
		"more after it": `{"version":1,"tokens":[],"names":[]} {}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			if _, err := pki.OpenAuthority(dir, time.Now()); err != nil {
				t.Fatal(err)
			}
			write(t, dir+"/issued.json", []byte(text), 0o600)
			if _, err := pki.OpenAuthority(dir, time.Now()); !errors.Is(err, pki.ErrDamaged) || !strings.Contains(err.Error(), "issued.json") {
				t.Errorf("%v", err)
			}
		})
	}
}
