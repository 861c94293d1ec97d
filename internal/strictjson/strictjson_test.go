package strictjson

import (
	"maps"
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
		{name: "array", text: `[]`, wantErr: "want an object, found ["},
		{name: "null", text: `null`, wantErr: "want an object, found null"},
		{name: "number", text: `{"a":1}`, wantErr: `"a": want a string, found the number "1"`},
		{name: "truth", text: `{"a":true}`, wantErr: `"a": want a string, found true`},
		{name: "nested", text: `{"a":{}}`, wantErr: `"a": want a string, found {`},
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
