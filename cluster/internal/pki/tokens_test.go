package pki_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
)

// authorities are the two kinds, with a function that opens the second again.
func authorities(t *testing.T, test func(t *testing.T, a *pki.Authority, again func() *pki.Authority)) {
	t.Run("in memory", func(t *testing.T) {
		a := newAuthority(t)
		test(t, a, func() *pki.Authority { return a })
	})
	t.Run("in a folder", func(t *testing.T) {
		dir := newDir(t)
		open := func() *pki.Authority {
			a, err := pki.OpenAuthority(dir, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		test(t, open(), open)
	})
}

func TestRedeem(t *testing.T) {
	authorities(t, func(t *testing.T, a *pki.Authority, again func() *pki.Authority) {
		now := time.Now()
		token := newToken(t, a, pki.Operator)
		revoked := newToken(t, a, pki.Worker)
		if err := a.Revoke(revoked.ID); err != nil {
			t.Fatal(err)
		}
		wrong := token.Secret
		wrong[31] ^= 1
		for _, a := range []*pki.Authority{a, again()} {
			for _, tt := range []struct {
				name   string
				id     string
				secret []byte
				now    time.Time
				want   error
			}{
				{"good", token.ID, token.Secret[:], now, nil},
				{"a second time", token.ID, token.Secret[:], now, nil},
				{"at its last second", token.ID, token.Secret[:], token.Expires, nil},
				{"expired", token.ID, token.Secret[:], token.Expires.Add(time.Nanosecond), pki.ErrTokenExpired},
				{"revoked", revoked.ID, revoked.Secret[:], now, pki.ErrTokenRevoked},
				{"revoked and expired", revoked.ID, revoked.Secret[:], now.Add(48 * time.Hour), pki.ErrTokenRevoked},
				{"wrong secret", token.ID, wrong[:], now, pki.ErrTokenUnknown},
				{"wrong secret, expired", token.ID, wrong[:], now.Add(48 * time.Hour), pki.ErrTokenUnknown},
				{"wrong secret, revoked", revoked.ID, wrong[:], now, pki.ErrTokenUnknown},
				{"another's secret", token.ID, revoked.Secret[:], now, pki.ErrTokenUnknown},
				{"no secret", token.ID, nil, now, pki.ErrTokenUnknown},
				{"half a secret", token.ID, token.Secret[:16], now, pki.ErrTokenUnknown},
				{"unknown id", "0000000000000000", token.Secret[:], now, pki.ErrTokenUnknown},
				{"unknown id, no secret", "0000000000000000", nil, now, pki.ErrTokenUnknown},
				{"no id", "", token.Secret[:], now, pki.ErrTokenUnknown},
				{"a long id", strings.Repeat("a", 1<<20), token.Secret[:], now, pki.ErrTokenUnknown},
			} {
				role, err := a.Redeem(tt.id, tt.secret, tt.now)
				if !errors.Is(err, tt.want) || (err == nil) != (role == pki.Operator) {
					t.Errorf("%s: %q, %v, want %v", tt.name, role, err, tt.want)
				}
				if tt.want != nil && !errors.Is(err, pki.ErrTokenRefused) {
					t.Errorf("%s: %v is not ErrTokenRefused", tt.name, err)
				}
			}
		}
		uses := make(map[string]pki.TokenInfo)
		for _, info := range again().Tokens() {
			uses[info.ID] = info
		}
		if got := uses[token.ID]; len(uses) != 2 || got.Uses != 6 || got.Revoked || got.Role != pki.Operator ||
			!got.Expires.Equal(token.Expires) {
			t.Errorf("%+v", uses)
		}
		if got := uses[revoked.ID]; got.Uses != 0 || !got.Revoked {
			t.Errorf("%+v", got)
		}
		if err := a.Revoke("0000000000000000"); !errors.Is(err, pki.ErrTokenUnknown) {
			t.Error(err)
		}
	})
}

func TestNewTokenRefuses(t *testing.T) {
	a, err := pki.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		role pki.Role
		ttl  time.Duration
		now  time.Time
	}{
		{"a coordinator", pki.Coordinator, time.Hour, time.Now()},
		{"no role", "", time.Hour, time.Now()},
		{"no time", pki.Worker, 0, time.Now()},
		{"less than none", pki.Worker, -time.Hour, time.Now()},
		{"longer than the authority", pki.Worker, 11 * 365 * 24 * time.Hour, time.Now()},
		{"before the authority", pki.Worker, time.Hour, time.Now().AddDate(-1, 0, 0)},
		{"after the authority", pki.Worker, time.Hour, time.Now().AddDate(11, 0, 0)},
	} {
		if token, err := a.NewToken(tt.role, tt.ttl, tt.now); err == nil {
			t.Errorf("%s: %v", tt.name, token)
		}
	}
}

// TestTokensBound: the number of tokens is limited, and expired ones make room.
func TestTokensBound(t *testing.T) {
	a := newAuthority(t)
	now := time.Now()
	for range pki.TokensMax {
		if _, err := a.NewToken(pki.Worker, time.Hour, now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.NewToken(pki.Worker, time.Hour, now); err == nil || !strings.Contains(err.Error(), "4096") {
		t.Fatal(err)
	}
	if _, err := a.NewToken(pki.Worker, time.Hour, now.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if n := len(a.Tokens()); n != 1 {
		t.Errorf("%d tokens", n)
	}
}

// TestTokensFileFits: the maximum number of tokens can be written and read.
func TestTokensFileFits(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"version":1,"tokens":[`)
	for i := range pki.TokensMax {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(strings.Replace(oneToken, "0123456789abcdef", hex16(i), 1))
	}
	b.WriteString("]}")
	content, err := pki.DecodeTokens([]byte(b.String()))
	if err != nil || len(content) > pki.TokensFileBytesMax {
		t.Errorf("%d bytes, %v", len(content), err)
	}
	more := strings.Replace(b.String(), "[", "["+oneToken+",", 1)
	if _, err := pki.DecodeTokens([]byte(more)); err == nil {
		t.Error("one more was read")
	}
}

// TestTwoProcesses: another process's new and revoked tokens take effect here at once, and no change of either is lost.
func TestTwoProcesses(t *testing.T) {
	dir := newDir(t)
	var open [2]*pki.Authority
	for i := range open {
		var err error
		if open[i], err = pki.OpenAuthority(dir, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if open[0].Hash() != open[1].Hash() {
		t.Fatal("two authorities in one folder")
	}
	var wg sync.WaitGroup
	tokens := make([][]pki.Token, len(open))
	for i, a := range open {
		wg.Go(func() {
			for range 10 {
				token, err := a.NewToken(pki.Worker, time.Hour, time.Now())
				if err != nil {
					t.Error(err)
					return
				}
				tokens[i] = append(tokens[i], token)
			}
		})
	}
	wg.Wait()
	for i, a := range open {
		other := open[1-i]
		if n := len(a.Tokens()); n != 20 {
			t.Errorf("%d tokens, want 20", n)
		}
		for _, token := range tokens[i] {
			if _, err := other.Redeem(token.ID, token.Secret[:], time.Now()); err != nil {
				t.Error(err)
			}
			if err := a.Revoke(token.ID); err != nil {
				t.Error(err)
			}
			if _, err := other.Redeem(token.ID, token.Secret[:], time.Now()); !errors.Is(err, pki.ErrTokenRevoked) {
				t.Error(err)
			}
		}
	}
}

// TestOpenAtOnce: of several processes that start at once, one makes the authority.
func TestOpenAtOnce(t *testing.T) {
	dir := newDir(t)
	hashes := make([][32]byte, 8)
	var wg sync.WaitGroup
	for i := range hashes {
		wg.Go(func() {
			a, err := pki.OpenAuthority(dir, time.Now())
			if err != nil {
				t.Error(err)
				return
			}
			hashes[i] = a.Hash()
		})
	}
	wg.Wait()
	for _, hash := range hashes {
		if hash != hashes[0] {
			t.Fatalf("%x", hashes)
		}
	}
}

// TestFullDisk: processes can join even if the count can't be written; a revocation that can't be written is an error.
func TestFullDisk(t *testing.T) {
	dir := newDir(t)
	a, err := pki.OpenAuthority(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	token := newToken(t, a, pki.Worker)
	// A folder with something in it in the temporary file's place stands for the full disk.
	if err := os.MkdirAll(filepath.Join(dir, ".tmp-tokens.json", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Redeem(token.ID, token.Secret[:], time.Now()); err != nil {
		t.Error(err)
	}
	if got := a.Tokens(); len(got) != 1 || got[0].Uses != 1 {
		t.Errorf("%+v", got)
	}
	if err := a.Revoke(token.ID); err == nil || !strings.Contains(err.Error(), "tokens.json") {
		t.Error(err)
	}
	if got := a.Tokens(); got[0].Revoked {
		t.Error("revoked in memory alone")
	}
	if _, err := a.NewToken(pki.Worker, time.Hour, time.Now()); err == nil {
		t.Error("a token was made that is gone at the next start")
	}
}
