package hf

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// packCharsmap makes a charsmap's file. The children of each node have 256 units of their own.
func packCharsmap(keys map[string]string) []byte {
	units := make([]uint32, 256)
	var texts []byte
	leaves, blocks := map[string]uint32{}, map[string]uint32{"": 0}
	var parts []string
	for key, to := range keys {
		leaves[key] = uint32(len(texts))
		texts = append(append(texts, to...), 0)
		for n := 1; n <= len(key); n++ {
			if _, ok := blocks[key[:n]]; !ok {
				blocks[key[:n]] = uint32(len(units))
				units = append(units, make([]uint32, 256)...)
				parts = append(parts, key[:n])
			}
		}
	}
	for _, part := range parts {
		last := uint32(part[len(part)-1])
		at := blocks[part[:len(part)-1]] ^ last
		units[at] = last | (at^blocks[part])<<10
		if _, ok := leaves[part]; ok {
			units[at] |= 1 << 8
		}
	}
	for key, at := range leaves {
		units[blocks[key]] = at | 1<<31
	}
	out := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, u := range units {
		out = binary.LittleEndian.AppendUint32(out, u)
	}
	return append(out, texts...)
}

var someRules = map[string]string{"ﬁ": "fi", "e\u0301": "é", "Ａ": "A", "\t": " ", "\x01": "", "\u200d": " ", "a": "b"}

// TestCharsmap: a short grapheme is replaced as a whole, by the shortest key.
func TestCharsmap(t *testing.T) {
	c, err := newCharsmap(packCharsmap(someRules))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"ﬁx\t\x01Ａ":               "fix A",
		"e\u0301 x":               "é x",
		"a\u0301":                 "b",                   // the mark is lost
		"a\u0301\u0302\u0303":     "b\u0301\u0302\u0303", // not of a long one
		"©\u200d®\u0301":          "© ®\u0301",
		"\r\n\t":                  "\r\n ",
		"\u0915\u094d\u0915a":     "\u0915\u094d\u0915b",
		"\u1100\u1161\u11a8Ａ\x01": "\u1100\u1161\u11a8A",
	} {
		if got := string(c.apply(nil, nil, []byte(text))); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestCharsmapRefused(t *testing.T) {
	good := packCharsmap(map[string]string{"ab": "c"})
	change := func(f func(units []uint32)) []byte {
		bad := slices.Clone(good)
		n := int(binary.LittleEndian.Uint32(bad)) / 4
		units := make([]uint32, n)
		for i := range units {
			units[i] = binary.LittleEndian.Uint32(bad[4+4*i:])
		}
		f(units)
		for i, u := range units {
			binary.LittleEndian.PutUint32(bad[4+4*i:], u)
		}
		return bad
	}
	for _, tt := range []struct {
		name, says string
		data       []byte
	}{
		{"nothing", "it has 0 bytes", nil},
		{"no trie", "its trie has 0 bytes", make([]byte, 8)},
		{"cut", "its trie has", good[:100]},
		{"a huge length", "its trie has 4294967292 bytes", append(bytes.Repeat([]byte{0xFF}, 4), good...)},
		{"no UTF-8", "not valid UTF-8", append(slices.Clone(good), 0xFF)},
		{"children outside", "children at", change(func(u []uint32) { u[0] = 1 << 29 })},
		{"a child's children outside", "children at", change(func(u []uint32) { u['a'] = 'a' | 1<<30 })},
		{"a text outside", "a text at byte", change(func(u []uint32) {
			for i := range u {
				if u[i]>>31 != 0 {
					u[i] = 1<<31 | 99
				}
			}
		})},
		{"a trie of one unit", "children at", []byte{4, 0, 0, 0, 0, 0, 0, 0}},
	} {
		if _, err := newCharsmap(tt.data); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.says)
		}
	}
	// A node that is its own child ends.
	loop := change(func(u []uint32) { u['a'] = 'a' | uint32('a')<<10 })
	if c, err := newCharsmap(loop); err == nil {
		c.apply(nil, nil, bytes.Repeat([]byte("a"), 1000))
	}
	for _, tt := range []struct{ value, says string }{
		{"null", "precompiled_charsmap is missing"}, {"1", "precompiled_charsmap is 1"}, {`"!"`, "not base64"}, {`""`, "too few"},
		{`"` + strings.Repeat("AAAA", maxCharsmapBytes/3+1) + `"`, "the limit is"},
	} {
		file := strings.Replace(small, `"normalizer":null`, `"normalizer":{"type":"Precompiled","precompiled_charsmap":`+tt.value+`}`, 1)
		_, err := Parse([]byte(file))
		if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "normalizer: Precompiled: ") {
			t.Errorf("%.20s: %v, want %q", tt.value, err, tt.says)
		}
	}
}

func FuzzCharsmap(f *testing.F) {
	f.Add(packCharsmap(someRules), "ﬁe\u0301a\x01\u200d")
	f.Add(packCharsmap(map[string]string{"ab": "c"}), "\r\nabab")
	f.Add([]byte{4, 0, 0, 0, 0, 0, 0, 0}, "a")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		c, err := newCharsmap(data)
		if err != nil || !utf8.ValidString(text) {
			return
		}
		got := c.apply(nil, nil, []byte(text))
		if !utf8.Valid(got) {
			t.Fatalf("%q became %q", text, got)
		}
		var made []byte
		done := 0
		c.edits(nil, []byte(text), func(from, to int, with []byte) {
			made = append(append(made, text[done:from]...), with...)
			done = to
		})
		if made = append(made, text[done:]...); !bytes.Equal(made, got) {
			t.Fatalf("edits make %q, not %q", made, got)
		}
	})
}
