package pki

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// A Token lets a process join a cluster with a role. Any process with its text can use it, so pass it
// in files, never in arguments.
type Token struct {
	Authority [32]byte // hash of the authority's root certificate: see Authority.Hash
	ID        string   // 16 hexadecimal digits; not secret
	Secret    [32]byte
	Role      Role
	Expires   time.Time // to the second
}

const (
	tokenPrefix   = "troupe1." // the number is the version
	idBytes       = 8
	checksumBytes = 4
	bodyBytes     = 32 + idBytes + 32 + 1 + 8
	tokenBytes    = bodyBytes + checksumBytes
)

// encoding refuses a text whose last bits are not zero, so that each token has exactly one text.
var encoding = base64.RawURLEncoding.Strict()

// String returns the token's text: one word, which contains the secret. fmt and slog print
// Redacted's text instead.
func (t Token) String() string {
	id, err := hex.DecodeString(t.ID)
	role := slices.Index(roles, t.Role) + 1
	if err != nil || len(id) != idBytes || role == 0 {
		return tokenPrefix // not a valid token; ParseToken refuses it
	}
	body := make([]byte, 0, tokenBytes)
	body = append(body, t.Authority[:]...)
	body = append(body, id...)
	body = append(body, t.Secret[:]...)
	body = append(body, byte(role))
	body = binary.BigEndian.AppendUint64(body, uint64(t.Expires.Unix()))
	body = append(body, tokenChecksum(body)...)
	return tokenPrefix + encoding.EncodeToString(body)
}

// Redacted describes the token without its secret.
func (t Token) Redacted() string {
	return fmt.Sprintf("token %s (%s, until %s)", t.ID, t.Role, stamp(t.Expires))
}

// Format implements fmt.Formatter and keeps the secret out of printed text.
func (t Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.Redacted()) }

// MarshalText implements encoding.TextMarshaler and keeps the secret out of JSON, among others. It
// can't be unmarshaled; use String to transport a token.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.Redacted()), nil }

// LogValue implements slog.LogValuer and keeps the secret out of logs.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.Redacted()) }

// ParseToken parses a token's text. Its errors are ErrToken and never contain the text.
func ParseToken(text string) (Token, error) {
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok {
		return Token{}, fmt.Errorf("%w: it does not begin with %s, as tokens of this version do", ErrToken, tokenPrefix)
	}
	if want := encoding.EncodedLen(tokenBytes); len(rest) != want {
		return Token{}, fmt.Errorf("%w: it has %d characters; want %d; check that you copied all of it", ErrToken, len(text),
			len(tokenPrefix)+want)
	}
	body, err := encoding.DecodeString(rest)
	if err != nil || len(body) != tokenBytes {
		return Token{}, fmt.Errorf("%w: it contains an invalid character; copy it again", ErrToken)
	}
	body, sum := body[:bodyBytes], body[bodyBytes:]
	if !bytes.Equal(sum, tokenChecksum(body)) {
		return Token{}, fmt.Errorf("%w: its checksum is wrong; copy it again", ErrToken)
	}
	var t Token
	body = body[copy(t.Authority[:], body):]
	t.ID, body = hex.EncodeToString(body[:idBytes]), body[idBytes:]
	body = body[copy(t.Secret[:], body):]
	role, seconds := int(body[0]), binary.BigEndian.Uint64(body[1:])
	if role < 1 || role > len(roles) {
		return Token{}, fmt.Errorf("%w: the number of its role is %d; want 1 to %d", ErrToken, role, len(roles))
	}
	if seconds > expiresMax {
		return Token{}, fmt.Errorf("%w: it expires after the year 9999", ErrToken)
	}
	t.Role = roles[role-1]
	t.Expires = time.Unix(int64(seconds), 0).UTC()
	return t, nil
}

// expiresMax is the last second that RFC 3339 can represent.
const expiresMax = 253402300799

// tokenChecksum detects a mistyped token, as opposed to a refused one. It is not secret.
func tokenChecksum(body []byte) []byte {
	h := sha256.New()
	h.Write([]byte(tokenPrefix))
	h.Write(body)
	return h.Sum(nil)[:checksumBytes]
}

// ReadTokenFile reads a token from a file that contains only the token and a line end. It refuses a
// file that other users may read or write.
func ReadTokenFile(path string) (Token, error) {
	content, err := readPrivate(path, tokenFileBytesMax, ofOthers)
	if err != nil {
		return Token{}, fmt.Errorf("read the token file: %w", err)
	}
	t, err := ParseToken(strings.TrimRight(string(content), "\r\n"))
	if err != nil {
		return Token{}, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// WriteTokenFile writes a token to a file that only this user may read. It replaces an existing file.
func WriteTokenFile(path string, t Token) error {
	text := t.String()
	if _, err := ParseToken(text); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return writePrivate(path, []byte(text+"\n"))
}
