package data

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// ErrNotText is in the chain of an error about a file that is no text in UTF-8.
var ErrNotText = errors.New("not a text in UTF-8")

// headBytes is how much of a file's beginning says what it is.
const headBytes = 4096

// byteOrderMark may begin a text in UTF-8, and is no part of it.
var byteOrderMark = []byte("\ufeff")

// kinds are formats that are no text, by what files of them begin with.
var kinds = []struct{ at, is, name string }{
	{"", "PK\x03\x04", "a ZIP archive, as office documents (.docx, .xlsx, .odt, .epub) are"},
	{"", "PK\x05\x06", "a ZIP archive, which is empty"},
	{"", "BZh", "compressed by bzip2"},
	{"", "\xfd7zXZ\x00", "compressed by xz"},
	{"", "7z\xbc\xaf\x27\x1c", "a 7z archive"},
	{"", "\x04\x22\x4d\x18", "compressed by LZ4"},
	{"", "\x5d\x00\x00", "compressed by LZMA"},
	{"", "\x1f\x9d", "compressed by compress (.Z)"},
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
	utf16L = "a text in UTF-16 (little-endian)"
	utf16B = "a text in UTF-16 (big-endian)"
)

// kindOf names what a file is by its beginning, where that is no text in UTF-8; "": it may be one.
func kindOf(head []byte) string {
	begins := func(with string) bool { return bytes.HasPrefix(head, []byte(with)) }
	switch {
	case begins("\xff\xfe\x00\x00"), begins("\x00\x00\xfe\xff"):
		return "a text in UTF-32"
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

// proseWith reports whether what a text might begin with, such as GIF8, is followed by text here.
func proseWith(magic string, head []byte) bool {
	return utf8.ValidString(magic) && !strings.ContainsFunc(magic, func(r rune) bool { return r < ' ' }) && utf8Prefix(head) &&
		bytes.IndexByte(head, 0) < 0 && magic != "%PDF-" && magic != "{\\rtf"
}

// utf8Prefix reports whether the beginning of a file is UTF-8, but for a character that it is cut in.
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

// utf16ByZeros finds UTF-16 without a byte order mark: of Latin letters every second byte is zero.
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

// NotText is an error about a file whose beginning is that of another format than text in UTF-8; nil: it may be
// text.
func NotText(name string, head []byte) error {
	kind := kindOf(head[:min(len(head), headBytes)])
	if kind == "" {
		return nil
	}
	how := "unpack it, or save its text as UTF-8"
	if strings.HasPrefix(kind, "a text") {
		how = "convert it: iconv -f UTF-16 -t UTF-8 " + plain(filepath.Base(name))
		if strings.Contains(kind, "UTF-32") {
			how = strings.Replace(how, "UTF-16", "UTF-32", 1)
		}
	}
	return fmt.Errorf("%s is %s: %w: %s", plain(name), kind, ErrNotText, how)
}

// notUTF8 finds the first byte of a text that is not UTF-8, and says why. It is as fast as the memory.
func notUTF8(text []byte) (at int, err error) {
	if utf8.Valid(text) {
		return 0, nil
	}
	for at < len(text) {
		// Whole blocks first: one by one takes ten times as long.
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
	why := "is the text in Latin-1 or Windows-1252? Convert it: iconv -f WINDOWS-1252 -t UTF-8"
	if len(text)-at < utf8.UTFMax && !utf8.FullRune(text[at:]) {
		why = "the file ends within a character: is it cut short?"
	}
	return at, fmt.Errorf("%w: %#02x is no character there; %s. To train on the bytes as they are, set data.invalid_utf8 = \"bytes\"",
		ErrNotText, text[at], why)
}
