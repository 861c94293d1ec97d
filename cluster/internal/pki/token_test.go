package pki_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
)

func sampleToken() pki.Token {
	t := pki.Token{ID: "0123456789abcdef", Role: pki.Operator, Expires: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	for i := range t.Secret {
		t.Authority[i], t.Secret[i] = byte(i), byte(255-i)
	}
	return t
}

// TestTokenText: the form of the text must not change, because tokens are stored in files.
func TestTokenText(t *testing.T) {
	const want = "troupe1.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8BI0VniavN7__-_fz7-vn49_b19PPy8fDv7u3s6-rp6Ofm5eTj4uHgAwAAAABw3VUlQgOUVw"
	if got := sampleToken().String(); got != want {
		t.Errorf("the text is\n%s, want\n%s", got, want)
	}
	if got, err := pki.ParseToken(want); err != nil || got != sampleToken() {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTokenRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		token := pki.Token{
			ID:      fmt.Sprintf("%016x", rapid.Uint64().Draw(t, "id")),
			Role:    rapid.SampledFrom([]pki.Role{pki.Coordinator, pki.Worker, pki.Operator, pki.Viewer}).Draw(t, "role"),
			Expires: time.Unix(rapid.Int64Range(0, 253402300799).Draw(t, "expires"), 0).UTC(),
		}
		copy(token.Secret[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "secret"))
		copy(token.Authority[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "authority"))
		if got, err := pki.ParseToken(token.String()); err != nil || got != token {
			t.Fatal(got, err)
		}
	})
}

// TestTokenTampered: a token with a changed, missing or added byte is refused.
func TestTokenTampered(t *testing.T) {
	text := sampleToken().String()
	refused := func(what, text string) {
		t.Helper()
		if _, err := pki.ParseToken(text); !errors.Is(err, pki.ErrToken) {
			t.Errorf("%s: %v", what, err)
		} else if strings.Contains(err.Error(), text[min(8, len(text)):]) && len(text) > 8 {
			t.Errorf("%s: the error shows the token: %v", what, err)
		}
	}
	for i := range len(text) {
		for b := range 256 {
			if byte(b) != text[i] {
				changed := []byte(text)
				changed[i] = byte(b)
				refused(fmt.Sprintf("byte %d is %#x", i, b), string(changed))
			}
		}
		refused(fmt.Sprintf("cut at %d", i), text[:i])
		refused(fmt.Sprintf("byte %d left out", i), text[:i]+text[i+1:])
		refused(fmt.Sprintf("line end at %d", i), text[:i]+"\n"+text[i:])
		if i > 0 && text[i] != text[i-1] {
			swapped := []byte(text)
			swapped[i], swapped[i-1] = swapped[i-1], swapped[i]
			refused(fmt.Sprintf("bytes %d and %d changed places", i-1, i), string(swapped))
		}
	}
	refused("a line end in place of a byte", text[:20]+"\n"+text[21:])
	refused("longer", text+"A")
	refused("padded", text+"==")
	refused("upper case", strings.ToUpper(text))
	refused("another version", "troupe2."+text[8:])
	refused("huge", text+strings.Repeat("A", 1<<20))
}

// TestTokenMade: an invalid token has no text that could be parsed.
func TestTokenMade(t *testing.T) {
	for _, change := range []func(*pki.Token){
		func(t *pki.Token) { t.ID = "" },
		func(t *pki.Token) { t.ID = "xyz" },
		func(t *pki.Token) { t.ID += "00" },
		func(t *pki.Token) { t.Role = "king" },
		func(t *pki.Token) { t.Expires = time.Time{} },
	} {
		token := sampleToken()
		change(&token)
		if _, err := pki.ParseToken(token.String()); !errors.Is(err, pki.ErrToken) {
			t.Errorf("%v: %v", token, err)
		}
		if err := pki.WriteTokenFile(filepath.Join(t.TempDir(), "token"), token); !errors.Is(err, pki.ErrToken) {
			t.Errorf("%v was written: %v", token, err)
		}
	}
}

// TestTokenIsNotShown: logs and errors don't show a token's secret.
func TestTokenIsNotShown(t *testing.T) {
	token := sampleToken()
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "token", token)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "token", token)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		_, _ = fmt.Fprintf(&b, verb+" "+verb+"\n", token, &token)
	}
	_ = json.NewEncoder(&b).Encode(token)
	for _, part := range []string{token.String()[8:], fmt.Sprintf("%x", token.Secret), fmt.Sprint(token.Secret)[1:20], "[255,254"} {
		if strings.Contains(b.String(), part) {
			t.Errorf("the secret is shown (%s):\n%s", part, &b)
		}
	}
	if !strings.Contains(b.String(), "token 0123456789abcdef (operator") {
		t.Errorf("%s", &b)
	}
}

func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	token := sampleToken()
	for range 2 { // the second replaces the first
		if err := pki.WriteTokenFile(path, token); err != nil {
			t.Fatal(err)
		}
		if got, err := pki.ReadTokenFile(path); err != nil || got != token {
			t.Fatal(got, err)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	for content, good := range map[string]bool{
		token.String():                   true,
		token.String() + "\r\n":          true,
		token.String() + "\n\n":          true,
		" " + token.String():             false,
		token.String() + "\nmore":        false,
		"":                               false,
		strings.Repeat("\n", 2000):       false,
		strings.Repeat("a", 100_000):     false,
		token.String() + "\n# a comment": false,
	} {
		write(t, path, []byte(content), 0o600)
		if got, err := pki.ReadTokenFile(path); (err == nil) != good || good && got != token {
			t.Errorf("%.40q: %v", content, err)
		} else if !good && !strings.Contains(err.Error(), path) {
			t.Errorf("%.40q: the error does not name the file: %v", content, err)
		}
	}
	if _, err := pki.ReadTokenFile(filepath.Dir(path)); err == nil {
		t.Error("a folder was read")
	}
	if _, err := pki.ReadTokenFile(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestTokenFileModes(t *testing.T) {
	needModes(t)
	path := filepath.Join(t.TempDir(), "token")
	for mode, good := range map[os.FileMode]bool{
		0o600: true, 0o400: true, 0o700: true,
		0o640: false, 0o620: false, 0o604: false, 0o602: false, 0o644: false, 0o666: false,
	} {
		write(t, path, []byte(sampleToken().String()), mode)
		_, err := pki.ReadTokenFile(path)
		if (err == nil) != good || err != nil && (!errors.Is(err, pki.ErrExposed) || !strings.Contains(err.Error(), "chmod 600 "+path)) {
			t.Errorf("%04o: %v", mode, err)
		}
	}
	if err := pki.WriteTokenFile(path, sampleToken()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("written with %v, %v", info.Mode(), err)
	}
}
