package strictjson

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestStringMap(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       map[string]string
		wantErr    string
	}{
		{name: "empty", text: `{}`, want: map[string]string{}},
		{name: "two, spaces", text: " {\"a\":\"1\", \"A\":\"2\"}\n", want: map[string]string{"a": "1", "A": "2"}},
		{name: "twice", text: `{"a":"1","a":"1"}`, wantErr: `the key "a" appears twice`},
		{name: "twice, escaped", text: `{"a":"1","\u0061":"1"}`, wantErr: `the key "a" appears twice`},
		{name: "array", text: `[]`, wantErr: "expected an object, found ["},
		{name: "null", text: `null`, wantErr: "expected an object, found null"},
		{name: "number", text: `{"a":1}`, wantErr: `"a": expected a string, found the number "1"`},
		{name: "truth", text: `{"a":true}`, wantErr: `"a": expected a string, found true`},
		{name: "nested", text: `{"a":{}}`, wantErr: `"a": expected a string, found {`},
		{name: "junk", text: `{} {}`, wantErr: "not valid JSON"},
		{name: "nothing", text: ``, wantErr: "not valid JSON"},
		{name: "not UTF-8", text: "{\"\xff\":\"\"}", wantErr: "not valid UTF-8"},
		{name: "too deep", text: strings.Repeat("[", 20000) + strings.Repeat("]", 20000), wantErr: "not valid JSON"},
		{name: "long key", text: `{"` + strings.Repeat("k", 5000) + `":1}`, wantErr: "(5000 bytes)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := stringMap(c.text)
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Fatalf("error %v, want %q in it", err, c.wantErr)
				}
				return
			}
			if err != nil || !maps.Equal(got, c.want) {
				t.Fatalf("got %v, %v, want %v", got, err, c.want)
			}
		})
	}
}

func stringMap(text string) (map[string]string, error) {
	dec, err := NewDecoder([]byte(text))
	if err != nil {
		return nil, err
	}
	m, err := StringMap(dec)
	if err != nil {
		return nil, err
	}
	return m, End(dec)
}

func TestUint(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
		ok   bool
	}{
		{"0", 0, true},
		{"9223372036854775807", 1<<63 - 1, true},
		{"9223372036854775808", 0, false},
		{"-1", 0, false},
		{"-0", 0, false},
		{"1.0", 0, false},
		{"1e3", 0, false},
		{`"1"`, 0, false},
		{"null", 0, false},
	} {
		dec, err := NewDecoder([]byte(c.text))
		if err != nil {
			t.Fatalf("%s: %v", c.text, err)
		}
		got, err := Uint(dec, 64)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%s: got %d, %v", c.text, got, err)
		}
	}
}

// Array gives every value its turn, and ends where one is refused.
func TestArray(t *testing.T) {
	refused := errors.New("no more than 3")
	for _, c := range []struct {
		text    string
		want    []int64
		wantErr string
	}{
		{`[]`, nil, ""},
		{` [1, 2 ,3] `, []int64{1, 2, 3}, ""},
		{`[1,2,3,4,5]`, []int64{1, 2, 3}, refused.Error()},
		{`[1,"2"]`, []int64{1}, `expected an integer, found the string "2"`},
		{`[1,[2]]`, []int64{1}, "expected an integer, found ["},
		{`{"a":1}`, nil, "expected an array, found {"},
		{`"[]"`, nil, `expected an array, found the string "[]"`},
		{`false`, nil, "expected an array, found false"},
	} {
		dec, err := NewDecoder([]byte(c.text))
		if err != nil {
			t.Fatalf("%s: %v", c.text, err)
		}
		var got []int64
		err = Array(dec, func() error {
			if len(got) == 3 {
				return refused
			}
			n, err := Uint(dec, 64)
			if err == nil {
				got = append(got, n)
			}
			return err
		})
		if !slices.Equal(got, c.want) || (err == nil) != (c.wantErr == "") || err != nil && !strings.Contains(err.Error(), c.wantErr) {
			t.Errorf("%s: got %d, %v, want %d, %q", c.text, got, err, c.want, c.wantErr)
		}
		if err == nil {
			if err := End(dec); err != nil {
				t.Errorf("%s: after it %v", c.text, err)
			}
		}
	}
}

// Skip takes a value whole, whatever is in it, so that the next key follows.
func TestSkip(t *testing.T) {
	for _, value := range []string{`null`, `"x"`, `1e400`, `[]`, `{"a":[{"a":1,"a":2}]}`} {
		dec, err := NewDecoder([]byte(`{"skipped":` + value + `,"read":"y"}`))
		if err != nil {
			t.Fatal(err)
		}
		var read string
		err = Object(dec, func(key string) (err error) {
			if key == "skipped" {
				return Skip(dec)
			}
			read, err = String(dec)
			return err
		})
		if read != "y" || err != nil {
			t.Errorf("after %s: %q, %v", value, read, err)
		}
	}
}

// End says what else there is.
func TestEnd(t *testing.T) {
	for text, want := range map[string]string{
		`"a"`: "", `"a" `: "", `"a" "b"`: `the string "b" after the end`, `"a" 7`: `the number "7" after the end`, `"a" [`: "[ after the end",
		`"a" ]`: "invalid character",
	} {
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		if s, err := String(dec); s != "a" || err != nil {
			t.Fatalf("%s: %q, %v", text, s, err)
		}
		if err := End(dec); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A decoder at its end has no value of any kind, and everyone says so.
func TestNothingLeft(t *testing.T) {
	for name, read := range map[string]func(dec *json.Decoder) error{
		"Object": func(dec *json.Decoder) error { return Object(dec, nil) },
		"Array":  func(dec *json.Decoder) error { return Array(dec, nil) },
		"String": func(dec *json.Decoder) error { _, err := String(dec); return err },
		"Uint":   func(dec *json.Decoder) error { _, err := Uint(dec, 64); return err },
		"Skip":   Skip,
	} {
		if err := read(json.NewDecoder(strings.NewReader(" "))); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v, want the end", name, err)
		}
	}
}

func TestPlain(t *testing.T) {
	long := strings.Repeat("x", 300)
	for text, want := range map[string]string{
		"größer 日本": "größer 日本", `"a"`: `"a"`, "": "", long: long,
		"a\nb": `"a\nb"`, "\x1b[2J": `"\x1b[2J"`, "a\u202eb": `"a\u202eb"`,
		long + "\n": `"` + long[:200] + `"… (301 bytes)`,
	} {
		if got := Plain(text); got != want {
			t.Errorf("Plain(%q) = %s, want %s", text, got, want)
		}
	}
}

// TestLoneSurrogates: half of a character, which encoding/json replaces silently, is refused.
func TestLoneSurrogates(t *testing.T) {
	for text, bad := range map[string]bool{
		`"\ud83d\ude00"`: false, `"\\ud83d"`: false, `"\u00e9\n\""`: false, `["\uD83D\uDE00", "\\\\ud800"]`: false,
		`"\ud83d"`: true, `"\ude00"`: true, `"\ude00\ud83d"`: true, `"\ud83d\ud83d\ude00"`: true, `"\ud83dx\ude00"`: true, `{"\uDC00": 1}`: true,
		`"\\\ud800"`: true,
	} {
		_, err := NewDecoder([]byte(text))
		if (err != nil) != bad || bad && !strings.Contains(err.Error(), "half of a surrogate pair") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
