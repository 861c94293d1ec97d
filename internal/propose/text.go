package propose

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/internal/base/words"
)

const (
	leastText = 200     // bytes of a text that one can train on
	largeText = 1 << 20 // bytes of a text from which a BPE tokenizer is worth its training
	mostChars = 256     // different characters of a text that gets a token for each
)

// text sets the keys for UTF-8 text.
func (p *Proposal) text(patterns []string, train []file, base *base, o Options) error {
	size := bytesOf(train)
	if size < leastText {
		return fmt.Errorf("%w: the text has %s; a model learns little from less than a megabyte, and nothing from less than %d bytes", ErrData,
			words.Plural(int(size), "byte"), leastText)
	}
	p.About = "text, " + words.Bytes(size)
	if base != nil {
		base.tune(p, length{units: size / 4, context: contextFor(size/4, 512)}, o)
		return nil
	}
	if chars := characters(train); chars <= mostChars {
		p.About += fmt.Sprintf(", %d different characters", chars)
		p.set("data.tokenizer", "chars", fmt.Sprintf("A token for each of the %d characters; or \"bytes\", or a folder with a tokenizer.json",
			chars))
	} else {
		p.About += fmt.Sprintf(", more than %d different characters", mostChars)
		p.set("data.tokenizer", "bytes", `A token for each byte; or "chars", or a folder with a tokenizer.json`)
	}
	if size >= largeText {
		vocab := 4096
		if size >= 32*largeText {
			vocab = 16384
		}
		p.note("a BPE tokenizer needs fewer tokens for this text: engine tokenize --train --vocab %d --to words %s, then set tokenizer = \"words\"",
			vocab, strings.Join(quoteAll(patterns), " "))
	}
	p.language(length{units: size, context: contextFor(size, 128)})
	return nil
}

// quoteAll quotes patterns for a shell.
func quoteAll(patterns []string) []string {
	quoted := make([]string, len(patterns))
	for i, pattern := range patterns {
		quoted[i] = "'" + strings.ReplaceAll(pattern, "'", `'\''`) + "'"
	}
	return quoted
}

// characters counts the different characters of the files' starts; it stops above mostChars.
func characters(all []file) int {
	seen := make(map[rune]bool)
	for _, f := range all {
		for text := f.head; len(text) > 0 && len(seen) <= mostChars; {
			r, size := utf8.DecodeRune(text)
			if text = text[size:]; r != utf8.RuneError || size > 1 { // the start may end within a character
				seen[r] = true
			}
		}
	}
	return len(seen)
}

// ids sets the keys for files of token ids.
func (p *Proposal) ids(train []file, base *base, o Options) error {
	wide := true // every second number of 16 bits is small, as in ids of 32 bits
	largest := 0
	for _, f := range train {
		for at := 0; at+4 <= len(f.head); at += 4 {
			low, high := int(binary.LittleEndian.Uint16(f.head[at:])), int(binary.LittleEndian.Uint16(f.head[at+2:]))
			largest = max(largest, low, high)
			wide = wide && high < 8
		}
		if f.bytes%2 != 0 {
			return fmt.Errorf("%w: %s has %d bytes, an odd number, so it is not token ids of 16 or 32 bits", ErrData, words.OneLine(f.name), f.bytes)
		}
	}
	format, size := "uint16", int64(2)
	if wide && largest > 8 {
		format, size = "uint32", 4
		largest = 0
		for _, f := range train {
			for at := 0; at+4 <= len(f.head); at += 4 {
				largest = max(largest, int(binary.LittleEndian.Uint32(f.head[at:])))
			}
		}
	}
	tokens := bytesOf(train) / size
	p.About = fmt.Sprintf("%s token ids (%s), the largest seen is %d", words.Count(tokens), format, largest)
	p.set("data.format", format, "Token ids, little-endian")
	l := length{units: tokens, context: contextFor(tokens, 128)}
	if base != nil {
		base.tune(p, l, o)
		return nil
	}
	p.set("model.vocab", (largest/64+1)*64, "Size of the vocabulary; set it to your tokenizer's")
	p.language(l)
	return nil
}
