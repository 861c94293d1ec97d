package data_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/klauspost/compress/zstd"

	"github.com/troupe-ml/troupe/internal/data"
)

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text)) // into memory
	_ = w.Close()
	return b.String()
}

func zstdOf(t *testing.T, text string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(w.EncodeAll([]byte(text), nil))
}

func utf16Of(order binary.ByteOrder, text string) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(text)) {
		b = append(b, 0, 0)
		order.PutUint16(b[len(b)-2:], u)
	}
	return string(b)
}

func archives(t *testing.T) (docx, tarball string) {
	t.Helper()
	var z, tb bytes.Buffer
	zw := zip.NewWriter(&z)
	f, err := zw.Create("word/document.xml")
	if err == nil {
		_, err = f.Write([]byte("<w:t>text</w:t>"))
	}
	if err = errors.Join(err, zw.Close()); err != nil {
		t.Fatal(err)
	}
	tw := tar.NewWriter(&tb)
	if err := tw.WriteHeader(&tar.Header{Name: "a.txt", Size: 4, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	_, _ = tw.Write([]byte("text")) // into memory
	_ = tw.Close()
	return z.String(), tb.String()
}

// TestWhatTextIs: text is UTF-8, by its content and not by its name; what is not is refused by its kind or its place.
func TestWhatTextIs(t *testing.T) {
	const text = "Grüße aus Köln, naïve café.\nOne more line.\n"
	latin := strings.NewReplacer("ü", "\xfc", "ß", "\xdf", "ö", "\xf6", "ï", "\xef", "é", "\xe9").Replace(text)
	docx, tarball := archives(t)
	gz, zst := gzipped(text), zstdOf(t, text)
	skipped := "\x50\x2a\x4d\x18\x04\x00\x00\x00abcd" + zst // a frame that readers skip comes first
	long := strings.Repeat("all good\n", 20_000)
	for _, tt := range []struct {
		name, content string
		want          string // the text; "": refused
		says          []string
	}{
		{"plain.txt", text, text, nil},
		{"crlf.txt", "a\r\nb\r\n", "a\r\nb\r\n", nil},
		{"mark.txt", "\ufeff" + text, text, nil},
		{"mark_inside.txt", text + "\ufeff" + text, text + "\ufeff" + text, nil},
		{"mark.txt.gz", gzipped("\ufeff" + text), text, nil},
		{"zeros.txt", "a\x00b with some more text", "a\x00b with some more text", nil},
		{"like_gif.txt", "GIF8 is how this text begins\n", "GIF8 is how this text begins\n", nil},
		{"like_orc.txt", "ORCs are many\n", "ORCs are many\n", nil},
		{"UP.TXT.GZ", gz, text, nil},
		{"a2.bin", gz, text, nil},
		{"noext", zst, text, nil},
		{"skipped", skipped, text, nil},
		{"concat.gz", gz + gz, text + text, nil},
		{"padded.gz", gz + strings.Repeat("\x00", 600), text, nil},
		{"concat_padded.gz", gz + gz + "\x00", text + text, nil},
		{"concat.zst", zst + zst, text + text, nil},

		{"latin1.txt", latin, "", []string{"latin1.txt, byte 2 (line 1)", "0xfc is not a valid character", "Latin-1",
			`data.invalid_utf8 = "bytes"`}},
		{"late.txt", long + latin, "", []string{"late.txt, byte 180002 (line 20001)"}},
		{"late_mark.txt", "\ufeffab\n\xe9 cd\n", "", []string{"late_mark.txt, byte 6 (line 2)"}},
		{"latin1.txt.gz", gzipped(latin), "", []string{"latin1.txt.gz, byte 2 (line 1)"}},
		{"cut.txt", text + "\xc3", "", []string{"byte 48 (line 3)", "ends within a character"}},
		{"surrogate.txt", "ab \xed\xa0\x80 cd", "", []string{"byte 3 (line 1)"}},
		{"utf16.txt", "\xff\xfe" + utf16Of(binary.LittleEndian, text), "", []string{"utf16.txt is UTF-16 text (little-endian)",
			"iconv -f UTF-16 -t UTF-8 utf16.txt"}},
		{"utf16be.txt", "\xfe\xff" + utf16Of(binary.BigEndian, text), "", []string{"UTF-16 text (big-endian)"}},
		{"utf16_no_mark.txt", utf16Of(binary.LittleEndian, "plain letters"), "", []string{"UTF-16 text (little-endian)"}},
		{"utf16be_no_mark.txt", utf16Of(binary.BigEndian, "plain letters"), "", []string{"UTF-16 text (big-endian)"}},
		{"utf16.txt.gz", gzipped("\xff\xfe" + utf16Of(binary.LittleEndian, text)), "", []string{"utf16.txt.gz is UTF-16 text"}},
		{"utf32.txt", "\xff\xfe\x00\x00a\x00\x00\x00", "", []string{"UTF-32"}},
		{"doc.docx", docx, "", []string{"doc.docx is a ZIP archive", "office"}},
		{"doc.txt", docx, "", []string{"doc.txt is a ZIP archive"}},
		{"x.tar.gz", gzipped(tarball), "", []string{"x.tar.gz is a tar archive"}},
		{"x.bz2", "BZh91AY&SY\xa1\x00", "", []string{"bzip2"}},
		{"x.xz", "\xfd7zXZ\x00\x00\x04", "", []string{"compressed with xz"}},
		{"x.pdf", "%PDF-1.7\n%\xe2\xe3", "", []string{"PDF"}},
		{"x.parquet", "PAR1\x15\x00\x15", "", []string{"Parquet"}},
		{"dbl.txt.gz", gzipped(gz), "", []string{"dbl.txt.gz is compressed twice, with gzip and with gzip inside"}},
		{"dbl.zst", zstdOf(t, gz), "", []string{"with zstd and with gzip inside"}},
		{"other.gz", text, "", []string{"other.gz has the name of a file compressed with gzip"}},
		{"OTHER.ZST", text, "", []string{"has the name of a file compressed with zstd"}},
		{"two.txt.gz", "\x1f\x8b", "", []string{"two.txt.gz"}},
		{"zero.txt.gz", "", "", []string{"zero.txt.gz"}},
		{"cut.txt.gz", gz[:len(gz)/2], "", []string{"cut.txt.gz", "damaged or truncated"}},
		{"cut.txt.zst", zst[:len(zst)/2], "", []string{"cut.txt.zst", "damaged or truncated"}},
		{"trail.txt.gz", gz + "trailing", "", []string{"trail.txt.gz", "damaged or truncated"}},
		{"after_padding.gz", gz + "\x00" + gz, "", []string{"after_padding.gz", "damaged or truncated"}},
		{"part_of_next.gz", gz + gz[:12], "", []string{"part_of_next.gz", "damaged or truncated"}},
		{"head_of_next.gz", gz + gz[:2], "", []string{"head_of_next.gz", "damaged or truncated"}},
		{"trail.txt.zst", zst + "trailing", "", []string{"trail.txt.zst", "damaged or truncated"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), tt.name)
			if err := os.WriteFile(path, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := data.ReadText([]string{path})
			if tt.want != "" {
				if err != nil || string(got.Bytes()) != tt.want {
					t.Errorf("%q, %v; want %q", got.Bytes(), err, tt.want)
				}
				return
			}
			if err == nil {
				t.Fatalf("it is read as %q", got.Bytes())
			}
			for _, want := range tt.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v doesn't say %q", err, want)
				}
			}
		})
	}
}

// TestBytesAreBytes: what was asked for as bytes is taken as it is.
func TestBytesAreBytes(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"latin": "Gr\xfc\xdfe", "utf16": "\xff\xfea\x00b\x00", "zip": "PK\x03\x04rest"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := data.ReadBytes([]string{path}); err != nil || string(got.Bytes()) != content {
			t.Errorf("%s: %q, %v", name, got.Bytes(), err)
		}
		if _, err := data.ReadText([]string{path}); !errors.Is(err, data.ErrNotText) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := data.TextOf("standard input", []byte("\ufeffab")); err != nil || string(got) != "ab" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := data.TextOf("standard input", []byte("a\nb\xff")); err == nil ||
		!strings.Contains(err.Error(), "standard input, byte 3 (line 2)") {
		t.Errorf("%v", err)
	}
}

// TestMarksOfShards: a byte order mark at the beginning of each file is no part of the text, and the places of errors count it.
func TestMarksOfShards(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for _, name := range []string{"a", "b", "c"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("\ufeff{\"text\": \""+name+"\"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	got, err := data.ReadText(files)
	if err != nil || string(got.Bytes()) != "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n" {
		t.Fatalf("%q, %v", got.Bytes(), err)
	}
	if file, at := got.Position(14); file != files[1] || at != 3 {
		t.Errorf("byte 14 is at %s, byte %d", file, at)
	}
}
