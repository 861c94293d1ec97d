// Package strictjson walks JSON that came from outside. encoding/json lets the
// last of two equal keys win and matches keys whatever their case; two readers
// of one file could then see two different things. Here a key appears once, and
// the caller sees it as it was written.
//
// The package imports the standard library only and knows no file format.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// NewDecoder returns a decoder over data, which has to be valid UTF-8 and valid
// JSON as a whole: encoding/json would replace what is not UTF-8 silently.
func NewDecoder(data []byte) (*json.Decoder, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the JSON is not valid UTF-8")
	}
	if !json.Valid(data) {
		// Unmarshal says where and why, which Valid does not.
		var ignored json.RawMessage
		return nil, fmt.Errorf("not valid JSON: %w", json.Unmarshal(data, &ignored))
	}
	if at := loneSurrogate(data); at >= 0 {
		return nil, fmt.Errorf("not valid JSON: %s at byte %d is half of a surrogate pair without the other half", data[at:at+6], at+1)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return dec, nil
}

// loneSurrogate is where an escape stands for half of a character, such as \ud83d without what should follow; -1:
// nowhere. encoding/json replaces it silently. The JSON must be valid.
func loneSurrogate(data []byte) int {
	half := func(at int) uint64 { // the number of \uXXXX, else 0
		if at+6 > len(data) || data[at] != '\\' || data[at+1] != 'u' {
			return 0
		}
		n, _ := strconv.ParseUint(string(data[at+2:at+6]), 16, 16)
		return n
	}
	for at := 0; ; {
		next := bytes.IndexByte(data[at:], '\\')
		if next < 0 {
			return -1
		}
		at += next
		switch n := half(at); {
		case n >= 0xdc00 && n < 0xe000:
			return at
		case n >= 0xd800 && n < 0xdc00:
			if m := half(at + 6); m < 0xdc00 || m >= 0xe000 {
				return at
			}
			at += 12
		default:
			at += 2
		}
	}
}

// Object reads an object. It calls member after every key, with the decoder at
// the key's value, which member has to consume whole.
func Object(dec *json.Decoder, member func(key string) error) error {
	if err := open(dec, '{', "an object"); err != nil {
		return err
	}
	seen := make(map[string]struct{})
	for dec.More() {
		key, err := String(dec)
		if err != nil {
			return err
		}
		if _, twice := seen[key]; twice {
			return fmt.Errorf("the key %s appears twice", Quote(key))
		}
		seen[key] = struct{}{}
		if err := member(key); err != nil {
			return err
		}
	}
	return closing(dec)
}

// Array reads an array. It calls element with the decoder at each value, which
// element has to consume whole.
func Array(dec *json.Decoder, element func() error) error {
	if err := open(dec, '[', "an array"); err != nil {
		return err
	}
	for dec.More() {
		if err := element(); err != nil {
			return err
		}
	}
	return closing(dec)
}

// StringMap reads an object all of whose values are strings.
func StringMap(dec *json.Decoder) (map[string]string, error) {
	m := make(map[string]string)
	err := Object(dec, func(key string) error {
		value, err := String(dec)
		if err != nil {
			return fmt.Errorf("%s: %w", Quote(key), err)
		}
		m[key] = value
		return nil
	})
	return m, err
}

// String reads a string.
func String(dec *json.Decoder) (string, error) {
	token, err := dec.Token()
	if err != nil {
		return "", err
	}
	s, ok := token.(string)
	if !ok {
		return "", fmt.Errorf("expected a string, found %s", describe(token))
	}
	return s, nil
}

// Uint reads an integer from 0 that fits in the given number of bits less the
// sign. Fractions and exponents are refused, whole or not.
func Uint(dec *json.Decoder, bits int) (int64, error) {
	token, err := dec.Token()
	if err != nil {
		return 0, err
	}
	number, ok := token.(json.Number)
	if !ok {
		return 0, fmt.Errorf("expected an integer, found %s", describe(token))
	}
	value, err := strconv.ParseUint(number.String(), 10, bits-1)
	if err != nil {
		return 0, fmt.Errorf("%s is not an integer from 0 to 2^%d-1", Quote(number.String()), bits-1)
	}
	return int64(value), nil
}

// Float reads a finite number.
func Float(dec *json.Decoder) (float64, error) {
	token, err := dec.Token()
	if err != nil {
		return 0, err
	}
	number, ok := token.(json.Number)
	if !ok {
		return 0, fmt.Errorf("expected a number, found %s", describe(token))
	}
	value, err := number.Float64()
	if err != nil {
		return 0, fmt.Errorf("%s is not a finite number", Quote(number.String()))
	}
	return value, nil
}

// Skip passes over one value of any kind.
func Skip(dec *json.Decoder) error {
	var ignored json.RawMessage
	return dec.Decode(&ignored)
}

// End makes sure that nothing but white space is left.
func End(dec *json.Decoder) error {
	token, err := dec.Token()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%s after the end", describe(token))
}

// Quote quotes text from outside for a message, shortened: a hostile file must
// not fill a terminal.
func Quote(s string) string {
	const bytesMax = 200
	if len(s) > bytesMax {
		return fmt.Sprintf("%q… (%d bytes)", s[:bytesMax], len(s))
	}
	return strconv.Quote(s)
}

// Show is a JSON value in a message, cut if it is long.
func Show(v json.RawMessage) string {
	const bytesMax = 200
	if len(v) > bytesMax {
		return fmt.Sprintf("%s… (%d bytes)", Plain(strings.ToValidUTF8(string(v[:bytesMax]), "")), len(v))
	}
	return Plain(string(v))
}

// Plain is a text, quoted where it could break a message's line or steer a terminal.
func Plain(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Quote(s)
	}
	return s
}

func open(dec *json.Decoder, want json.Delim, what string) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	if token != want {
		return fmt.Errorf("expected %s, found %s", what, describe(token))
	}
	return nil
}

// closing reads the bracket that More has seen.
func closing(dec *json.Decoder) error {
	_, err := dec.Token()
	return err
}

func describe(token json.Token) string {
	switch t := token.(type) {
	case nil:
		return "null"
	case json.Delim:
		return t.String()
	case string:
		return "the string " + Quote(t)
	case json.Number:
		return "the number " + Quote(t.String())
	default:
		return fmt.Sprint(t)
	}
}
