package hf

import (
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkEncode encodes this package's own source with each tokenizer of the vectors, and
// with the file that TOKENIZER names.
func BenchmarkEncode(b *testing.B) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		b.Fatal(err)
	}
	var text []byte
	for _, name := range files {
		more, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		text = append(text, more...)
	}
	all := allVectors(b)
	if name := os.Getenv("TOKENIZER"); name != "" {
		file, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		tok, err := Parse(file)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, &vector{Name: filepath.Base(name), tok: tok})
	}
	for _, v := range all {
		b.Run(v.Name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			var ids []int32
			for b.Loop() {
				var err error
				if ids, err = v.tok.AppendEncode(ids[:0], text, Plain); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
