package pki_test

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
)

const oneToken = `{"id":"0123456789abcdef","secret_sha256":"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff","role":"worker","expires":"2030-01-02T03:04:05Z","revoked":false,"uses":3}`

func hex16(i int) string { return fmt.Sprintf("%016x", i) }

func openDir(t *testing.T, dir string) *pki.Authority {
	t.Helper()
	a, err := pki.OpenAuthority(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestOpenAuthority(t *testing.T) {
	dir := filepath.Join(newDir(t), "deep")
	a := openDir(t, dir)
	key := read(t, filepath.Join(dir, "authority.pem"))
	b := openDir(t, dir)
	if a.Hash() != b.Hash() || !bytes.Equal(a.Root(), b.Root()) {
		t.Error("another authority")
	}
	if !bytes.Equal(key, read(t, filepath.Join(dir, "authority.pem"))) {
		t.Error("the file was written again")
	}
	// What the first has signed the second takes.
	cert := issue(t, a, worker)
	if _, err := pki.Bind(issueKey(cert), cert.Certificate[0], b.Root()); err != nil {
		t.Error(err)
	}
	for when, now := range map[string]time.Time{"before": time.Now().AddDate(0, 0, -1), "after": time.Now().AddDate(11, 0, 0)} {
		if _, err := pki.OpenAuthority(dir, now); err == nil || !strings.Contains(err.Error(), "clock says "+now.UTC().Format(time.RFC3339)) {
			t.Errorf("%s its time: %v", when, err)
		}
	}
}

func TestOpenModes(t *testing.T) {
	needModes(t)
	dir := newDir(t)
	newToken(t, openDir(t, dir), pki.Worker)
	for name, want := range map[string]os.FileMode{"": 0o700, "authority.pem": 0o600, "tokens.json": 0o600, ".lock": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: %v, want %v (%v)", name, info.Mode(), want, err)
		}
	}
	for _, tt := range []struct {
		name string
		mode os.FileMode
		good bool
	}{
		{"", 0o700, true}, {"", 0o755, true}, {"", 0o720, false}, {"", 0o702, false}, {"", 0o777, false}, {"", os.ModeSticky | 0o777, false},
		{"authority.pem", 0o400, true}, {"authority.pem", 0o640, false}, {"authority.pem", 0o604, false}, {"authority.pem", 0o620, false},
		{"tokens.json", 0o640, false}, {"tokens.json", 0o602, false},
	} {
		path := filepath.Join(dir, tt.name)
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, tt.mode); err != nil {
			t.Fatal(err)
		}
		_, err = pki.OpenAuthority(dir, time.Now())
		if (err == nil) != tt.good || err != nil && (!errors.Is(err, pki.ErrExposed) || !strings.Contains(err.Error(), "chmod")) {
			t.Errorf("%q with mode %v: %v", tt.name, tt.mode, err)
		}
		if err := os.Chmod(path, before.Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpenDamaged: a file that is cut at any place, changed or missing gives an error that names it and says what to do, and
// stays unchanged.
func TestOpenDamaged(t *testing.T) {
	made := newDir(t)
	newToken(t, openDir(t, made), pki.Worker)
	other := newDir(t)
	openDir(t, other)
	authority, tokens := read(t, filepath.Join(made, "authority.pem")), read(t, filepath.Join(made, "tokens.json"))
	foreign := read(t, filepath.Join(other, "authority.pem"))
	block, rest := pem.Decode(authority)
	foreignBlock, foreignRest := pem.Decode(foreign)
	leaf := issue(t, openDir(t, made), worker)

	type damage struct {
		name, file string
		content    []byte // nil: the file is gone
	}
	damages := []damage{
		{"gone", "authority.pem", nil},
		{"empty", "authority.pem", []byte{}},
		{"key alone", "authority.pem", pem.EncodeToMemory(block)},
		{"certificate alone", "authority.pem", rest},
		{"certificate first", "authority.pem", append(bytes.Clone(rest), pem.EncodeToMemory(block)...)},
		{"another's key", "authority.pem", append(pem.EncodeToMemory(foreignBlock), rest...)},
		{"another's certificate", "authority.pem", append(pem.EncodeToMemory(block), foreignRest...)},
		{"two certificates", "authority.pem", append(bytes.Clone(authority), rest...)},
		{"no authority's certificate", "authority.pem", append(pem.EncodeToMemory(block),
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]})...)},
		{"text behind", "authority.pem", append(bytes.Clone(authority), "more"...)},
		{"too long", "authority.pem", bytes.Repeat(authority, 200)},
		{"empty", "tokens.json", []byte{}},
		{"no JSON", "tokens.json", []byte("tokens")},
		{"too long", "tokens.json", bytes.Repeat([]byte(" "), pki.TokensFileBytesMax+1)},
	}
	for _, tt := range damagedTokens {
		damages = append(damages, damage{tt.name, "tokens.json", []byte(tt.content)})
	}
	for i := 0; i < len(authority)-1; i += 7 {
		damages = append(damages, damage{fmt.Sprintf("cut at %d", i), "authority.pem", authority[:i]})
	}
	for i := range len(tokens) - 2 {
		damages = append(damages, damage{fmt.Sprintf("cut at %d", i), "tokens.json", tokens[:i]})
	}
	for i := 40; i < len(authority); i += 11 { // within the base64 of key and certificate
		changed := bytes.Clone(authority)
		changed[i] ^= 4
		damages = append(damages, damage{fmt.Sprintf("byte %d changed", i), "authority.pem", changed})
	}
	for _, tt := range damages {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "authority.pem"), authority, 0o600)
		write(t, filepath.Join(dir, "tokens.json"), tokens, 0o600)
		path := filepath.Join(dir, tt.file)
		if tt.content == nil {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		} else {
			write(t, path, tt.content, 0o600)
		}
		_, err := pki.OpenAuthority(dir, time.Now())
		tooLong := tt.name == "too long"
		if err == nil || !strings.Contains(err.Error(), path) || errors.Is(err, pki.ErrDamaged) == tooLong ||
			!tooLong && !strings.Contains(err.Error(), "restore it") {
			t.Errorf("%s, %s: %v", tt.file, tt.name, err)
		}
		after, readErr := os.ReadFile(path)
		if tt.content == nil && !errors.Is(readErr, os.ErrNotExist) || tt.content != nil && !bytes.Equal(after, tt.content) {
			t.Errorf("%s, %s: the file was replaced", tt.file, tt.name)
		}
	}
}

var damagedTokens = []struct{ name, content string }{
	{"another version", `{"version":2,"tokens":[]}`},
	{"no version", `{"tokens":[]}`},
	{"no tokens", `{"version":1}`},
	{"an array", `[]`},
	{"null", `{"version":1,"tokens":null}`},
	{"two documents", `{"version":1,"tokens":[]}{}`},
	{"an unknown key", `{"version":1,"tokens":[],"x":1}`},
	{"a key twice", `{"version":1,"tokens":[],"tokens":[]}`},
	{"a token twice", `{"version":1,"tokens":[` + oneToken + `,` + oneToken + `]}`},
	{"a key of a token twice", tokenWith(`"revoked":false`, `"revoked":true,"revoked":false`)},
	{"revoked misspelt", tokenWith(`"revoked"`, `"Revoked"`)},
	{"revoked left out", tokenWith(`"revoked":false,`, ``)},
	{"revoked as a text", tokenWith(`"revoked":false`, `"revoked":"false"`)},
	{"revoked is null", tokenWith(`"revoked":false`, `"revoked":null`)},
	{"an unknown key of a token", tokenWith(`"uses"`, `"x":1,"uses"`)},
	{"a short id", tokenWith("0123456789abcdef", "0123456789abcd")},
	{"an id in upper case", tokenWith("0123456789abcdef", "0123456789ABCDEF")},
	{"a short hash", tokenWith(`00112233`, ``)},
	{"a long hash", tokenWith(`00112233`, `0011223344`)},
	{"no role", tokenWith(`"worker"`, `""`)},
	{"a coordinator", tokenWith(`"worker"`, `"coordinator"`)},
	{"a date alone", tokenWith(`T03:04:05Z`, ``)},
	{"another zone", tokenWith(`T03:04:05Z`, `T03:04:05+01:00`)},
	{"parts of a second", tokenWith(`T03:04:05Z`, `T03:04:05.5Z`)},
	{"a negative count", tokenWith(`"uses":3`, `"uses":-3`)},
	{"a broken count", tokenWith(`"uses":3`, `"uses":3.5`)},
	{"a huge count", tokenWith(`"uses":3`, `"uses":99999999999999999999`)},
	{"a nested token", `{"version":1,"tokens":[[` + oneToken + `]]}`},
}

func tokenWith(old, replacement string) string {
	return `{"version":1,"tokens":[` + strings.Replace(oneToken, old, replacement, 1) + `]}`
}

// TestTokensDamagedLater: a running coordinator also refuses a damaged file.
func TestTokensDamagedLater(t *testing.T) {
	dir := newDir(t)
	a := openDir(t, dir)
	token := newToken(t, a, pki.Worker)
	write(t, filepath.Join(dir, "tokens.json"), []byte("{}"), 0o600)
	if _, err := a.Redeem(token.ID, token.Secret[:], time.Now()); !errors.Is(err, pki.ErrDamaged) || errors.Is(err, pki.ErrTokenRefused) {
		t.Error(err)
	}
	if _, err := a.NewToken(pki.Worker, time.Hour, time.Now()); !errors.Is(err, pki.ErrDamaged) {
		t.Error(err)
	}
	if got := read(t, filepath.Join(dir, "tokens.json")); string(got) != "{}" {
		t.Errorf("it was replaced by %s", got)
	}
	// With the file gone no token counts, and the next one is the only one.
	if err := os.Remove(filepath.Join(dir, "tokens.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Redeem(token.ID, token.Secret[:], time.Now()); !errors.Is(err, pki.ErrTokenUnknown) {
		t.Error(err)
	}
	newToken(t, a, pki.Worker)
	if n := len(a.Tokens()); n != 1 {
		t.Errorf("%d tokens", n)
	}
}

func TestOpenNoFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, nil, 0o600)
	for _, dir := range []string{path, filepath.Join(path, "below"), ""} {
		if _, err := pki.OpenAuthority(dir, time.Now()); err == nil {
			t.Errorf("%q was opened", dir)
		}
	}
}
