package data

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// ErrNotText: a file is not UTF-8 text.
var ErrNotText = errors.New("not UTF-8 text")

// headBytes is how much of a file's start identifies its format.
const headBytes = 4096

// byteOrderMark may precede a UTF-8 text and is not part of it.
var byteOrderMark = []byte("\ufeff")

// kinds are formats other than text, by the start of their files.
var kinds = []struct{ at, is, name string }{
	{"", "PK\x03\x04", "a ZIP archive, such as an office document (.docx, .xlsx, .odt, .epub)"},
	{"", "PK\x05\x06", "an empty ZIP archive"},
	{"", "BZh", "compressed with bzip2"},
	{"", "\xfd7zXZ\x00", "compressed with xz"},
	{"", "7z\xbc\xaf\x27\x1c", "a 7z archive"},
	{"", "\x04\x22\x4d\x18", "compressed with LZ4"},
	{"", "\x5d\x00\x00", "compressed with LZMA"},
	{"", "\x1f\x9d", "compressed with compress (.Z)"},
	{"", "Rar!\x1a\x07", "a RAR archive"},
	{"", "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an office document (.doc, .xls, .ppt)"},
	{"", "%PDF-", "a PDF document"},
	{"", "{\\rtf", "an RTF document"},
	{"", "PAR1", "a Parquet file"},
	{"", "ARROW1", "an Arrow file"},
	{"", "\xff\xff\xff\xff", "an Arrow stream"},
	{"", "ORC", "an ORC file"},
	{"", "Obj\x01", "an Avro file"},
	{"", "\x89HDF\r\n\x1a\n", "an HDF5 file"},
	{"", "\x93NUMPY", "a NumPy array"},
	{"", "SQLite format 3\x00", "an SQLite database"},
	{"", "GGUF", "a GGUF model"},
	{"", "\x89PNG\r\n\x1a\n", "a PNG image"},
	{"", "\xff\xd8\xff", "a JPEG image"},
	{"", "GIF8", "a GIF image"},
	{"", "\x7fELF", "a program"},
}

const (
	tarAt  = 257
	tarIs  = "ustar"
	utf16L = "UTF-16 text (little-endian)"
	utf16B = "UTF-16 text (big-endian)"
)

// kindOf identifies a file by its start, if that is not UTF-8 text; "": it may be text.
func kindOf(head []byte) string {
	begins := func(with string) bool { return bytes.HasPrefix(head, []byte(with)) }
	switch {
	case begins("\xff\xfe\x00\x00"), begins("\x00\x00\xfe\xff"):
		return "UTF-32 text"
	case begins("\xff\xfe"):
		return utf16L
	case begins("\xfe\xff"):
		return utf16B
	}
	for _, k := range kinds {
		if begins(k.is) && !proseWith(k.is, head) {
			return k.name
		}
	}
	if len(head) >= tarAt+len(tarIs) && string(head[tarAt:tarAt+len(tarIs)]) == tarIs {
		return "a tar archive"
	}
	return utf16ByZeros(head)
}

// proseWith reports whether something with which a text might start, such as GIF8, is followed by
// text here.
func proseWith(magic string, head []byte) bool {
	return utf8.ValidString(magic) && !strings.ContainsFunc(magic, func(r rune) bool { return r < ' ' }) && utf8Prefix(head) &&
		bytes.IndexByte(head, 0) < 0 && magic != "%PDF-" && magic != "{\\rtf"
}

// utf8Prefix reports whether the start of a file is UTF-8, except for a truncated last character.
func utf8Prefix(head []byte) bool {
	for range utf8.UTFMax {
		if utf8.Valid(head) {
			return true
		}
		if len(head) < headBytes {
			return false
		}
		head = head[:len(head)-1]
	}
	return false
}

// utf16ByZeros detects UTF-16 without a byte order mark: with Latin letters every second byte is
// zero.
func utf16ByZeros(head []byte) string {
	var zeros [2]int
	for i, b := range head {
		if b == 0 {
			zeros[i%2]++
		}
	}
	pairs := len(head) / 2
	switch {
	case zeros[0]+zeros[1] < 2:
	case zeros[1] > pairs*3/10 && zeros[0] == 0:
		return utf16L
	case zeros[0] > pairs*3/10 && zeros[1] == 0:
		return utf16B
	}
	return ""
}

// NotText returns an error if a file's start shows another format than UTF-8 text; nil: it may be
// text.
func NotText(name string, head []byte) error {
	kind := kindOf(head[:min(len(head), headBytes)])
	if kind == "" {
		return nil
	}
	how := "decompress it, or save its text as UTF-8"
	if kind == "a Parquet file" {
		how = "to train on its rows, set data.format = \"documents\""
	}
	if strings.HasPrefix(kind, "an Arrow") {
		how = "save it as Parquet: datasets.Dataset.from_file(FILE).to_parquet(\"data.parquet\")"
	}
	if strings.HasPrefix(kind, "UTF-") {
		how = "convert it: iconv -f UTF-16 -t UTF-8 " + plain(filepath.Base(name))
		if strings.Contains(kind, "UTF-32") {
			how = strings.Replace(how, "UTF-16", "UTF-32", 1)
		}
	}
	return fmt.Errorf("%s is %s: %w: %s", plain(name), kind, ErrNotText, how)
}

// notUTF8 finds the first byte of a text that is not UTF-8, and explains it. It is limited only by
// memory bandwidth.
func notUTF8(text []byte) (at int, err error) {
	if utf8.Valid(text) {
		return 0, nil
	}
	for at < len(text) {
		// Whole blocks first: character by character takes ten times as long.
		const block = 1 << 16
		if end := min(len(text), at+block); utf8.Valid(text[at:end]) {
			at = end
			continue
		}
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		at += size
	}
	why := "the text may be Latin-1 or Windows-1252; convert it with iconv -f WINDOWS-1252 -t UTF-8"
	if len(text)-at < utf8.UTFMax && !utf8.FullRune(text[at:]) {
		why = "the file ends within a character and may be truncated"
	}
	return at, fmt.Errorf("%w: %#02x is not a valid character; %s. To train on the raw bytes, set data.invalid_utf8 = \"bytes\"",
		ErrNotText, text[at], why)
}
