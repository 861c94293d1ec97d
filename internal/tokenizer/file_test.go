package tokenizer

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func chars(t testing.TB, text string) *Chars {
	t.Helper()
	c, err := BuildChars([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func marshal(t testing.TB, tok Tokenizer) []byte {
	t.Helper()
	data, err := Marshal(tok)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestGoldenFiles(t *testing.T) {
	for name, tok := range map[string]Tokenizer{
		"bytes.json": Bytes{},
		"chars.json": chars(t, "\x00\t\n \"\\<&>'azé€\u2028\uFFFD🙂"),
	} {
		path := filepath.Join("testdata", name)
		got := marshal(t, tok)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what Marshal writes; see go test -update and git diff", path)
		}
		back, err := Unmarshal(want)
		if err != nil || !reflect.DeepEqual(back, tok) {
			t.Errorf("%s reads as %v, %v", path, back, err)
		}
	}
}

func TestFileRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, err := BuildChars([]byte(rapid.StringN(1, -1, -1).Draw(t, "text")))
		if err != nil {
			t.Fatal(err)
		}
		data, err := Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Unmarshal(data)
		if err != nil || !reflect.DeepEqual(back, c) {
			t.Fatalf("%q became %v, %v", c.runes, back, err)
		}
	})
}

// The published table of byte-level BPE, at the edges of its ranges.
func TestByteWords(t *testing.T) {
	words := byteWords()
	for b, want := range map[int]string{
		0: "Ā", '\n': "Ċ", ' ': "Ġ", '!': "!", '~': "~", 127: "ġ", 160: "ł",
		161: "¡", 172: "¬", 173: "Ń", 174: "®", 255: "ÿ",
	} {
		if words[b] != want {
			t.Errorf("byte %d is spelled %q, want %q", b, words[b], want)
		}
	}
	slices.Sort(words)
	if n := len(slices.Compact(words)); n != 256 {
		t.Errorf("%d spellings for 256 bytes", n)
	}
}

func TestUnmarshalAcceptsAnyOrderOfIDs(t *testing.T) {
	file := strings.NewReplacer(`"a": 0`, `"a": 2`, `"c": 2`, `"c": 0`).Replace(string(marshal(t, chars(t, "abc"))))
	tok, err := Unmarshal([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(tok.Decode([]int32{0, 1, 2})); got != "cba" {
		t.Errorf("ids 0 1 2 are %q, want cba", got)
	}
}

func TestUnmarshalErrors(t *testing.T) {
	bytesJSON, charsJSON := string(marshal(t, Bytes{})), string(marshal(t, chars(t, "abc")))
	edit := func(file, old, new string) string {
		if !strings.Contains(file, old) {
			t.Fatalf("the file does not contain %q", old)
		}
		return strings.Replace(file, old, new, 1)
	}
	for _, tc := range []struct {
		name, file  string
		unsupported bool
		says        string
	}{
		{"empty", "", false, "it is not valid JSON: unexpected end"},
		{"truncated", charsJSON[:len(charsJSON)-3], false, "it is not valid JSON: unexpected end"},
		{"no object", "[1]", false, "found [1] where an object"},
		{"trailing", charsJSON + "{}", false, "after top-level value"},
		{"it is not valid UTF-8", edit(charsJSON, `"a"`, "\"\xff\""), false, "UTF-8"},
		{"too long", strings.Repeat(" ", MaxFileBytes+1), false, "67108865 bytes"},
		{"no model", `{"version": "1.0"}`, true, `"model" is missing`},
		{"model null", `{"model": null}`, false, "found null"},
		{"model without a type", `{"model": {}}`, true, "the type is missing"},
		{"an unknown model", `{"model": {"type": "WordSalad", "vocab": []}}`, true, `"WordSalad"`},
		{"an empty Unigram", `{"model": {"type": "Unigram", "vocab": []}}`, false, "model: vocab is empty"},
		{"merges", edit(bytesJSON, `"merges": []`, `"merges": [["a", "b"]]`), false,
			`model: merge 0 results in "ab", which is not in the vocabulary`},
		{"long merges", edit(bytesJSON, `"merges": []`, `"merges": ["`+strings.Repeat("é", 5000)+`"]`), false, "é…"},
		{"no merges", edit(bytesJSON, `"merges": [],`, ``), false, "model: merges has the impossible value null"},
		{"added token", edit(charsJSON, `"added_tokens": []`, `"added_tokens": [{"id": 3}]`), true, "added_tokens"},
		{"normalizer", edit(charsJSON, `"normalizer": null`, `"normalizer": {"type": "NFC"}`), true, `normalizer is {"type": "NFC"}`},
		{"pre-tokenizer", edit(charsJSON, `"Isolated"`, `"Removed"`), true, "pre_tokenizer"},
		{"unknown setting", edit(charsJSON, `"version"`, `"Version"`), true, "unknown setting Version"},
		{"unknown model setting", edit(charsJSON, `"unk_token"`, `"unk"`), true, "unknown setting model.unk"},
		{"escapes in a setting", edit(charsJSON, `"version"`, `"\u001b]0;x\u0007\nengine: done"`), true,
			`unknown setting "\x1b]0;x\a\nengine: done"`},
		{"escapes in a value", edit(charsJSON, `"1.0"`, "\"\u009b2J\u202e\""), true, `version is "\"\u009b2J\u202e\""`},
		{"lines in a value", edit(charsJSON, `"1.0"`, "{\n\"engine: done\": 1}"), true, `version is "{\n\"engine: done\": 1}"`},
		{"escapes in the type", `{"model": {"type": "` + "\x7f" + `"}}`, true, `"\x7f"`},
		{"a long word", edit(charsJSON, `"b"`, `"`+strings.Repeat("é", 1<<20)+`"`), true, "é…"},
		{"twice", edit(charsJSON, `"version"`, `"model": 1, "version"`), false, `"model" occurs twice`},
		{"a character twice", edit(charsJSON, `"b"`, `"a"`), false, `"a" occurs twice`},
		{"a word", edit(charsJSON, `"b"`, `"ab"`), true, `id 1 is "ab"`},
		{"the empty word", edit(charsJSON, `"b"`, `""`), true, `id 1 is ""`},
		{"no vocabulary", edit(charsJSON, `"vocab"`, `"normalizer"`), true, "model.normalizer"},
		{"the vocabulary missing", charsJSON[:strings.LastIndexByte(charsJSON[:strings.Index(charsJSON, `"vocab"`)], ',')] + "}}", true,
			"model.vocab is missing"},
		{"the vocabulary null", charsJSON[:strings.Index(charsJSON, `"vocab"`)] + `"vocab": null}}`, false,
			"model.vocab: found null where an object"},
		{"empty vocabulary", strings.NewReplacer(`"a": 0,`, "", `"b": 1,`, "", `"c": 2`, "").Replace(charsJSON), false, "empty"},
		{"id twice", edit(charsJSON, `"b": 1`, `"b": 0`), false, `id 0 of "b" is already used`},
		{"id negative", edit(charsJSON, `"b": 1`, `"b": -1`), false, "-1"},
		{"id too large", edit(charsJSON, `"b": 1`, `"b": 3`), false, "0 to 2"},
		{"id no integer", edit(charsJSON, `"b": 1`, `"b": 1.5`), false, "1.5"},
		{"id huge", edit(charsJSON, `"b": 1`, `"b": 99999999999999999999`), false, "99999999999999999999"},
	} {
		tok, err := Unmarshal([]byte(tc.file))
		if err == nil {
			t.Errorf("%s: accepted as %T", tc.name, tok)
			continue
		}
		if errors.Is(err, ErrUnsupported) != tc.unsupported {
			t.Errorf("%s: is ErrUnsupported %v: %v", tc.name, !tc.unsupported, err)
		}
		if strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s: %q is not a plain line", tc.name, err)
		}
		if !strings.Contains(err.Error(), tc.says) || len(err.Error()) > 400 {
			t.Errorf("%s: %q does not say %q, or is too long", tc.name, err, tc.says)
		}
	}
}

func TestMarshalUnsupported(t *testing.T) {
	type other struct{ Bytes }
	if _, err := Marshal(other{}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add(marshal(f, Bytes{}))
	f.Add(marshal(f, chars(f, "a\n<é🙂")))
	f.Add([]byte(`{"model": {"type": "BPE", "vocab": {}, "merges": ["a b"]}}`))
	f.Add([]byte(`{"model": {"type": "WordLevel", "vocab": {"\ud800": 0}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Unmarshal(data)
		if err != nil {
			return
		}
		back, err := Unmarshal(marshal(t, tok))
		if err != nil || !bytes.Equal(marshal(t, tok), marshal(t, back)) {
			t.Fatalf("%T came back as %T, %v", tok, back, err)
		}
	})
}
