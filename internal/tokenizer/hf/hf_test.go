package hf

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// texts draws what the patterns tell apart, and what is odd.
func texts() *rapid.Generator[string] {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{" ", "  ", "\n", "\r\n", "\t", "\u3000", "\u0085", "'s", "'LL", "'ſ", "'", "a", "Zé", "字", "12", "½", "٣", "_",
			"-->", "👩‍👧", "e\u0301", "\u0344", "한", "<|x|>", "\x00", "\U0002ec0e", "\U00010d40"}),
		rapid.StringN(0, 8, -1),
	)
	return rapid.Map(rapid.SliceOfN(piece, 0, 30), func(s []string) string { return strings.Join(s, "") })
}

// TestScanners: the words of a scanner are those of the pattern.
func TestScanners(t *testing.T) {
	for text, s := range knownPatterns {
		p, err := newPattern(text)
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			line := []byte(texts().Draw(t, "text"))
			var want, got []string
			p.each(&work{}, line, func(from, to int) { want = append(want, string(line[from:to])) })
			for rest := line; len(rest) > 0; {
				n := s(chars(), rest)
				got, rest = append(got, string(rest[:n])), rest[n:]
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%q: %q, want %q", line, got, want)
			}
		})
	}
}

// TestPatterns: what Oniguruma makes of patterns that regexp2 would take otherwise.
func TestPatterns(t *testing.T) {
	for _, tt := range []struct{ pattern, text, want string }{
		{`[A-Z]{2,4}+`, "RIGHT", "RIGH"},
		{`(?:[A-Z]{2,4})+`, "RIGHT", "RIGH"},
		{`a++b|a`, "aab a", "aab|a"},
		{`a++a|b`, "aab", "b"},
		{`(?i:'s|k)`, "'ſ'S\u212Ak", "'ſ|'S|\u212A|k"},
		{`a*`, "aab", "aa|"},
		{`[a[bc]-]+`, "a-cd", "a-c"},
		{`\w+`, "a²ⓐ_-é", "a²ⓐ_|é"},
		{`\p{Lo}+`, "\U0002ec0e字a", "\U0002ec0e字"},
		{`x{,2}y`, "xxxy", "xxy"},
		{`\b.`, "ab c", "a| |c"},
		{`[\p{L}&&[^\p{Lu}]]+`, "aBéc", "a|éc"},
		{`[^\p{L}&&[a-c]]+`, "abdc!", "d|!"},
		{`[a[^b-z\s]]+`, "zab A1", "a|A1"},
		{`[\p{L}\p{N}&&[^\p{Han}]&&[^x-z]]+`, "ax字1b", "a|1b"},
		{`[[:digit:][:space:]x]+`, "a1 ٣\tx_", "1 ٣\tx"},
		{`[a-c&&b-z]{2}`, "abcb", "bc"},
	} {
		p, err := newPattern(tt.pattern)
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
			continue
		}
		var got []string
		p.each(&work{}, []byte(tt.text), func(from, to int) { got = append(got, tt.text[from:to]) })
		if strings.Join(got, "|") != tt.want {
			t.Errorf("%s in %q: %q, want %q", tt.pattern, tt.text, got, tt.want)
		}
	}
}

// TestScanAndQueue: short words and long ones merge alike.
func TestScanAndQueue(t *testing.T) {
	for _, v := range allVectors(t) {
		m := v.tok.bpe
		if m == nil {
			continue
		}
		rapid.Check(t, func(t *rapid.T) {
			ids := rapid.SliceOfN(rapid.Int32Range(0, int32(len(m.tokens)-1)), 1, maxScanned).Draw(t, "ids")
			var q mergeQueue
			long := q.merge(&m.merges, nil, ids, nil)
			var scratch [maxScanned][2]int32
			if short := m.merges.scan(slices.Clone(ids), &scratch); !slices.Equal(short, long) {
				t.Fatalf("%v: %v by looking through, %v by the queue", ids, short, long)
			}
		})
	}
}

// TestCut: a text that is cut where it may be has the same ids.
func TestCut(t *testing.T) {
	able := 0
	for _, v := range allVectors(t) {
		if !v.tok.cuts {
			continue
		}
		able++
		rapid.Check(t, func(t *rapid.T) {
			text := texts().Draw(t, "text") + v.Rows[rapid.IntRange(0, len(v.Rows)-1).Draw(t, "row")].line + texts().Draw(t, "more")
			if len(text) < 2 {
				return
			}
			most := rapid.IntRange(1, len(text)-1).Draw(t, "most")
			at := v.tok.Cut([]byte(text), most)
			if at > most {
				t.Fatalf("cut at %d, beyond %d", at, most)
			}
			for _, mode := range []Mode{Plain, Special} {
				got := append(encode(t, v.tok, text[:at], mode), encode(t, v.tok, text[at:], mode)...)
				if want := encode(t, v.tok, text, mode); !slices.Equal(got, want) {
					t.Fatalf("%q and %q in mode %d: %v, want %v", text[:at], text[at:], mode, got, want)
				}
			}
		})
	}
	if able == 0 {
		t.Error("none can be cut")
	}
}

// TestCutsSoon: ordinary text is cut near where it is asked to be.
func TestCutsSoon(t *testing.T) {
	tok := trainedOn(t, "the quick brown fox\n", 270)
	text := strings.Repeat("The quick, brown fox (it's 1 fox).\n\n", 100)
	for most := 200; most < 300; most++ {
		if at := tok.Cut([]byte(text), most); at < most-40 {
			t.Errorf("of %d bytes, %d", most, at)
		}
	}
}

func trainedOn(t testing.TB, text string, vocab int) *Tokenizer {
	t.Helper()
	tr := NewTrainer()
	tr.Add([]byte(text))
	file, _, err := tr.Train(vocab, []string{"<|endoftext|>"})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestTrain: the merges are those of the tokenizers library's BpeTrainer.
func TestTrain(t *testing.T) {
	const text = "banana bandana banana abcabcabc abcab cab\nbanana ananas 12345 12 123\n"
	tr := NewTrainer()
	tr.Add([]byte(text[:42]))
	tr.Add([]byte(text[42:]))
	file, size, err := tr.Train(290, []string{"<|endoftext|>"})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	var merged []string
	for id := int32(257); int(id) < tok.Vocab(); id++ {
		name, _ := tok.Token(id)
		merged = append(merged, name)
	}
	want := strings.Split("an ab ana ban cab 12 banana Ġab 123 Ġabcab 45 dana Ġan Ġban Ġcab Ġbanana anas cabc Ġabcabcabc Ġananas Ġbandana",
		" ")
	if !slices.Equal(merged, want) || size != 257+len(want) {
		t.Errorf("%d tokens: %q, want %q", size, merged, want)
	}
	again := NewTrainer()
	again.Add([]byte(text[42:]))
	again.Add([]byte(text[:42]))
	if other, _, err := again.Train(290, []string{"<|endoftext|>"}); err != nil || !bytes.Equal(other, file) {
		t.Errorf("the texts' order matters (%v)", err)
	}
	for _, bad := range []struct {
		vocab   int
		special []string
		says    string
	}{{256, []string{"<x>"}, "it must have from 257"}, {maxTokens + 1, nil, "16777217"}, {300, []string{"<x>", "<x>"}, "twice"},
		{300, []string{""}, "empty"}, {300, []string{"é"}, "one character"}} {
		if _, _, err := tr.Train(bad.vocab, bad.special); err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%v: error %v", bad, err)
		}
	}
	if _, _, err := NewTrainer().Train(300, nil); err == nil {
		t.Error("nothing was trained on")
	}
}

func TestTrainRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := NewTrainer()
		text := texts().Draw(t, "text") + "x"
		tr.Add([]byte(text))
		file, _, err := tr.Train(rapid.IntRange(256, 300).Draw(t, "vocab"), nil)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := Parse(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(tok.AppendDecode(nil, encode(t, tok, text, Whole), true)); got != text {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

// TestInvalidUTF8: as Python's errors="replace".
func TestInvalidUTF8(t *testing.T) {
	for text, want := range map[string]string{
		"a\xff\xe2\x82b\xe2\x82\xac\xf0\x9f\x98":           "a\ufffd\ufffdb€\ufffd",
		"\xed\xa0\x80\xf4\x90\x80\x80\xc0\x80":             strings.Repeat("\ufffd", 9),
		"\xf0\x80\x80\x80\xe0\x80\xf0\x9f\x98\x80\xf0\x9f": strings.Repeat("\ufffd", 6) + "😀\ufffd",
		"\xe2\x28\xa1\xf8\x88":                             "\ufffd(\ufffd\ufffd\ufffd",
	} {
		if got := string(appendValid(nil, []byte(text))); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
		tok := allVectors(t)[0].tok
		if got, same := encode(t, tok, text, Plain), encode(t, tok, want, Plain); !slices.Equal(got, same) {
			t.Errorf("%q: %v, want %v", text, got, same)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.SampledFrom([]byte("aé€😀\xff\xed\xa0\xf4\x90"))).Draw(t, "text")
		if got := appendValid(nil, text); !utf8.Valid(got) || utf8.Valid(text) && !bytes.Equal(got, text) {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

// TestLongWords: neither a long word nor one of many marks takes long.
func TestLongWords(t *testing.T) {
	const n = 1 << 16
	rng := rand.New(rand.NewPCG(1, 2))
	var mixed strings.Builder
	for range n {
		mixed.WriteByte(byte('a' + rng.IntN(3)))
	}
	for _, v := range allVectors(t) {
		for _, text := range []string{strings.Repeat("a", n), mixed.String(), strings.Repeat(" ", n) + "x", "e" +
			strings.Repeat("\u0301\u0323", n/4), strings.Repeat("字", n/4)} {
			ids := encode(t, v.tok, text, Plain)
			if len(ids) > 16*len(text) {
				t.Errorf("%s: %d ids of %d bytes", v.Name, len(ids), len(text))
			}
		}
	}
}

// White space is the same to Rust's libraries, to Oniguruma and to Go.
func TestSpaces(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		if got := chars().prop(r)&propSpace != 0; got != unicode.IsSpace(r) {
			t.Errorf("%U is white space: %v, to Go %v", r, got, !got)
		}
	}
}

const small = `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null,
	"model":{"type":"BPE","dropout":null,"unk_token":null,"fuse_unk":false,"byte_fallback":false,"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`

// TestRefused: what can't be done is named, and says so.
func TestRefused(t *testing.T) {
	if _, err := Parse([]byte(small)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, old, new, says string }{
		{"a model", `"BPE"`, `"WordSalad"`, `model: unsupported tokenizer: the type is "WordSalad"`},
		{"dropout", `"dropout":null`, `"dropout":0.1`, "dropout is 0.1"},
		{"truncation", `"truncation":null`, `"truncation":{"max_length":5}`, "truncation is set"},
		{"padding", `"padding":null`, `"padding":{}`, "padding is set"},
		{"version", `"1.0"`, `"2.0"`, `version "2.0"`},
		{"a normalizer", `"normalizer":null`, `"normalizer":{"type":"NFX"}`, `normalizer: unsupported tokenizer: unknown type "NFX"`},
		{"a part of a sequence", `"normalizer":null`, `"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Other"}]}`,
			"normalizer: Sequence: part 1: "},
		{"a pre-tokenizer", `"pre_tokenizer":null`, `"pre_tokenizer":{"type":"UnicodeScripts"}`,
			`pre_tokenizer: unsupported tokenizer: unknown type "UnicodeScripts"`},
		{"a pattern", `"pre_tokenizer":null`, `"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a\\Xb"},"behavior":"Isolated","invert":false}`,
			`Split: unsupported tokenizer: the pattern a\Xb has \X`},
		{"a class in a class", `"pre_tokenizer":null`,
			`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a[:alpha:]]"},"behavior":"Isolated","invert":false}`, "[:alpha:]"},
		{"a negated intersection", `"pre_tokenizer":null`,
			`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[^a-z&&[^b]]"},"behavior":"Isolated","invert":false}`, "[^ with && and"},
		{"an intersection of nothing", `"pre_tokenizer":null`,
			`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a&&]"},"behavior":"Isolated","invert":false}`, "&& next to nothing"},
		{"a post-processor", `"post_processor":null`, `"post_processor":{"type":"X"}`, `post_processor: unsupported tokenizer: unknown type "X"`},
		{"a decoder", `"decoder":null`, `"decoder":{"type":"CTC"}`, `decoder: unsupported tokenizer: unknown type "CTC"`},
	} {
		_, err := Parse([]byte(strings.Replace(small, tt.old, tt.new, 1)))
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: error %v, want an ErrUnsupported with %q", tt.name, err, tt.says)
		}
	}
	for _, tt := range []struct{ name, old, new, says string }{
		{"a merge of nothing", `"a b"`, `"a c"`, `merge 0 uses "c"`},
		{"a merge to nothing", `"a b"`, `"b a"`, `merge 0 results in "ba"`},
		{"three in a merge", `"a b"`, `["a","b","a"]`, "merge 0 has 3"},
		{"an id below 0", `"b":1`, `"b":-1`, "the id -1"},
		{"a huge id", `"b":1`, `"b":2000000000`, "the id 2000000000"},
		{"an id beyond all others", `"b":1`, `"b":1000000`, "the id 1000000 of"},
		{"an id that is none", `"b":1`, `"b":1.5`, "an id is not an integer: number 1.5"},
		{"no vocabulary", `"vocab":{"a":0,"b":1,"ab":2}`, `"vocab":null`, "vocab has the impossible value"},
		{"an unknown setting of the file", `"version"`, `"revision":1,"version"`, `unknown setting "revision"`},
		{"an unknown setting of the model", `"vocab"`, `"max_len":1,"vocab"`, `model: BPE: unsupported tokenizer: unknown setting "max_len"`},
		{"an unknown setting of a normalizer", `"normalizer":null`, `"normalizer":{"type":"NFC","form":"x"}`, `normalizer: NFC: unsupported`},
		{"an unknown setting of an added token", `"added_tokens":[]`, `"added_tokens":[{"content":"x","LSTRIP":true}]`, `token 0: unsupported`},
		{"an unknown token that is unknown", `"unk_token":null`, `"unk_token":"<unk>"`, `unk_token "<unk>"`},
		{"a setting's type", `"fuse_unk":false`, `"fuse_unk":1`, "fuse_unk is 1"},
		{"a template's token", `"post_processor":null`,
			`"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}}],"special_tokens":{}}`,
			`special_tokens does not contain "<s>"`},
		{"a template of two", `"post_processor":null`,
			`"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B"}}],"special_tokens":{}}`, "piece 0"},
		{"no content", `"added_tokens":[]`, `"added_tokens":[{"id":3}]`, "token 0 has no content"},
		{"a behavior", `"pre_tokenizer":null`, `"pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"isolated","invert":false}`,
			`unknown behavior "isolated"`},
	} {
		if _, err := Parse([]byte(strings.Replace(small, tt.old, tt.new, 1))); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: error %v, want %q in it", tt.name, err, tt.says)
		}
	}
	model := small[strings.Index(small, `{"type":"BPE"`) : len(small)-1]
	piece := `{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{"[UNK]":0}}`
	for _, tt := range []struct{ name, model, says string }{
		{"no scores", `{"type":"Unigram","unk_id":0}`, "vocab has the impossible value null"},
		{"a vocabulary of another model", `{"type":"Unigram","vocab":{"a":1}}`, "vocab has the impossible value"},
		{"three in a pair", `{"type":"Unigram","vocab":[["a",1,2]]}`, "token 0 is not a pair"},
		{"a score that is a text", `{"type":"Unigram","vocab":[["a","1"]]}`, "token 0 is not a pair"},
		{"a score beyond a float64", `{"type":"Unigram","vocab":[["a",1e999]]}`, `the score of "a" is 1e999`},
		{"unk_id below 0", `{"type":"Unigram","unk_id":-1,"vocab":[["a",1]]}`, "unk_id is -1, outside"},
		{"unk_id beyond the vocabulary", `{"type":"Unigram","unk_id":1,"vocab":[["a",1]]}`, "unk_id is 1, outside"},
		{"unk_id that is none", `{"type":"Unigram","unk_id":"a","vocab":[["a",1]]}`, "unk_id is"},
		{"pieces of more than the limit", `{"type":"Unigram","vocab":[["` + strings.Repeat("a", maxTrieBytes+1) + `",1]]}`, "the limits"},
		{"no prefix", strings.Replace(piece, "continuing", "starting", 1), `unknown setting "starting_subword_prefix"`},
		{"no length", strings.Replace(piece, "100", "null", 1), "max_input_chars_per_word is missing"},
		{"a length below 0", strings.Replace(piece, "100", "-1", 1), "max_input_chars_per_word is -1"},
		{"an id below 0", strings.Replace(piece, `"[UNK]":0`, `"[UNK]":-5`, 1), "the id -5"},
	} {
		if _, err := Parse([]byte(strings.Replace(small, model, tt.model, 1))); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: error %v, want %q in it", tt.name, err, tt.says)
		}
	}
	deep := strings.Repeat(`{"type":"Sequence","normalizers":[`, 500) + strings.Repeat("]}", 500)
	if _, err := Parse([]byte(strings.Replace(small, `"normalizer":null`, `"normalizer":`+deep, 1))); !errors.Is(err, ErrUnsupported) {
		t.Errorf("500 sequences in one another: %v", err)
	}
}

// TestAddedTokens: those that the vocabulary lacks get the next ids, as the library gives them.
func TestAddedTokens(t *testing.T) {
	added := func(content string, special bool) string {
		return fmt.Sprintf(`{"id":9,"content":%q,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":%v}`, content,
			special)
	}
	tok, err := Parse([]byte(strings.Replace(small, `"added_tokens":[]`, `"added_tokens":[`+added("ab", false)+","+added("<x>", true)+","+
		added("<y>", false)+"]", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got := encode(t, tok, "a<x>ab<y>b?", Special); !slices.Equal(got, []int32{0, 3, 2, 4, 1}) {
		t.Errorf("ids %v", got)
	}
	if got := encode(t, tok, "a<x>b", Plain); !slices.Equal(got, []int32{2}) { // what is unknown is dropped
		t.Errorf("plain: %v", got)
	}
	if id, ok := tok.TokenID("<x>"); id != 3 || !ok || !tok.IsSpecial(3) || tok.IsSpecial(4) || tok.Vocab() != 5 {
		t.Errorf("<x> is %d, %v; %d ids", id, ok, tok.Vocab())
	}
	if got := string(tok.AppendDecode(nil, []int32{0, 3, 99, -1, 2}, false)); got != "a ab" {
		t.Errorf("decoded: %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small), "ab<x> a\xff")
	for _, v := range allVectors(f) {
		if len(v.Tokenizer) < 1<<16 {
			f.Add([]byte(v.Tokenizer), v.Rows[len(v.Rows)-1].line)
		}
	}
	f.Add([]byte(strings.NewReplacer(`"pre_tokenizer":null`,
		`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?i:'s)|[^a-c\\s]+|\\b\\w"},"behavior":"MergedWithNext","invert":true}`,
		`"decoder":null`,
		`"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":2}]}`).Replace(small)), "it's a b ")
	f.Fuzz(func(t *testing.T, file []byte, text string) {
		tok, err := Parse(file)
		if err != nil {
			return
		}
		for mode := Plain; mode <= Whole; mode++ {
			ids, err := tok.AppendEncode(nil, []byte(text), mode)
			if err != nil {
				return
			}
			whole := tok.AppendDecode(nil, ids, true)
			d := tok.NewDecoder(true)
			var parts []byte
			for _, id := range ids {
				parts = d.Next(parts, id)
			}
			if parts = d.Flush(parts); !bytes.Equal(parts, whole) {
				t.Fatalf("%q at once, %q id by id", whole, parts)
			}
		}
		if len(text) > 1 {
			if at := tok.Cut([]byte(text), len(text)-1); at < 0 || at > len(text)-1 {
				t.Fatalf("cut at %d of %d", at, len(text))
			}
		}
	})
}

// TestLongest: no text has fewer ids than its bytes and the longest token say.
func TestLongest(t *testing.T) {
	known := 0
	for _, v := range allVectors(t) {
		n := v.tok.Longest()
		if n == 0 {
			continue
		}
		known++
		for _, r := range v.Rows {
			for _, ids := range [][]int32{r.plain, r.special} {
				if len(ids)*n < len(r.line) {
					t.Errorf("%s: %d ids for the %d bytes of %q; the longest token has %d", v.Name, len(ids), len(r.line), r.line, n)
				}
			}
		}
	}
	if known == 0 {
		t.Error("no tokenizer has a longest token")
	}
}
