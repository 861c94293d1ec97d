package term

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/base/words"
)

func TestBar(t *testing.T) {
	fields := []string{"loss 2.3456", "val 2.4012", "1m23s left"}
	for _, c := range []struct {
		bar   Bar
		width int
		want  string
	}{
		{Bar{340, 1000, fields}, 100, " 340/1000 [=========>                    ]  loss 2.3456  val 2.4012  1m23s left"},
		{Bar{340, 1000, fields}, 62, " 340/1000 [===>         ]  loss 2.3456  val 2.4012  1m23s left"},
		{Bar{340, 1000, fields}, 50, " 340/1000 [===>         ]  loss 2.3456  val 2.4012"},
		{Bar{340, 1000, fields}, 30, " 340/1000 [=====>            ]"},
		{Bar{340, 1000, fields}, 21, " 340/1000"},
		{Bar{340, 1000, nil}, 5, " 340/"},
		{Bar{340, 1000, nil}, 0, ""},
		{Bar{340, 1000, nil}, -3, ""},
		{Bar{0, 10, nil}, 40, " 0/10 [                              ]"},
		{Bar{10, 10, nil}, 40, "10/10 [==============================]"},
		{Bar{12, 10, nil}, 40, "12/10 [==============================]"},
		{Bar{0, 0, nil}, 20, "0/0 [              ]"},
	} {
		if got := c.bar.Render(c.width); got != c.want {
			t.Errorf("%d columns:\n got %q\nwant %q", c.width, got, c.want)
		}
	}
}

func TestBarFitsAnyWidth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Bar{
			Done:   rapid.IntRange(0, 1e9).Draw(t, "done"),
			Total:  rapid.IntRange(0, 1e9).Draw(t, "total"),
			Fields: rapid.SliceOf(rapid.StringMatching(`[a-z]{1,30}`)).Draw(t, "fields"),
		}
		width := rapid.IntRange(-1, 300).Draw(t, "width")
		if got := b.Render(width); len(got) > max(width, 0) {
			t.Fatalf("%d columns: %q has %d", width, got, len(got))
		}
	})
}

func TestScreenKeepsTheBarBelow(t *testing.T) {
	var out strings.Builder
	s := NewScreen(&out, &out, func() int { return 6 })
	s.Line("header")
	s.Draw(Bar{Done: 1, Total: 2})
	s.Line("line")
	s.Notice("warning")
	s.Draw(Bar{Done: 2, Total: 2})
	s.Clear()
	s.Line("end")
	const clear = "\r\x1b[K"
	want := "header\n" +
		clear + "1/2" +
		clear + "line\n" + clear + "1/2" +
		clear + "warning\n" + clear + "1/2" +
		clear + "2/2" +
		clear + "end\n"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

func TestScreenWithoutTerminal(t *testing.T) {
	var out, err strings.Builder
	s := NewScreen(&out, &err, Width(&out))
	s.Draw(Bar{Done: 1, Total: 2})
	s.Line("line")
	s.Notice("warning")
	s.Clear()
	if out.String() != "line\n" || err.String() != "warning\n" || s.HasBar() {
		t.Errorf("out %q, err %q, bar %v", out.String(), err.String(), s.HasBar())
	}
}

func TestWriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"a", "\n", "é", "\x1b", "\u009b", "\u202e", "日", "🙂", "\xff",
			"\x9b"})).Draw(t, "text"), "") + "."
		var got strings.Builder
		w := NewWriter(&got, words.Harmless)
		for rest := text; rest != ""; {
			n := rapid.IntRange(0, len(rest)).Draw(t, "n")
			if wrote, err := w.Write([]byte(rest[:n])); wrote != n || err != nil {
				t.Fatalf("wrote %d of %d bytes, %v", wrote, n, err)
			}
			rest = rest[n:]
		}
		if got, want := []rune(got.String()), []rune(words.Harmless(text)); string(got) != string(want) {
			t.Fatalf("%q became %q, want %q", text, string(got), string(want))
		}
	})
}

func TestScreenIsHarmless(t *testing.T) {
	var out, err strings.Builder
	s := NewScreen(&out, &err, nil)
	s.Line("a\x1b[2J")
	s.Notice("b\r\u009b")
	if out.String() != "a\uFFFD[2J\n" || err.String() != "b\uFFFD\uFFFD\n" {
		t.Errorf("out %q, err %q", out.String(), err.String())
	}
}

// What the stream below refuses comes back, and is not said to be written.
func TestWriterErrors(t *testing.T) {
	full := errors.New("no space left")
	w := NewWriter(writeFunc(func([]byte) (int, error) { return 0, full }), words.Harmless)
	for _, c := range []struct {
		text  string
		wrote int
		err   error
	}{
		{"", 0, nil}, {"\xe6", 1, nil}, {"\x97", 1, nil}, // the beginning of a character is held
		{"\xa5", 0, full}, {"abc", 0, full},
	} {
		if n, err := w.Write([]byte(c.text)); n != c.wrote || !errors.Is(err, c.err) {
			t.Errorf("%q: wrote %d, %v, want %d, %v", c.text, n, err, c.wrote, c.err)
		}
	}
}

type writeFunc func(p []byte) (int, error)

func (f writeFunc) Write(p []byte) (int, error) { return f(p) }

// No stream but a terminal has a bar, and a screen goes on when writing fails.
func TestWidth(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, out := range []io.Writer{file, &strings.Builder{}, nil} {
		if IsTerminal(out) || Width(out) != nil {
			t.Errorf("%T is taken for a terminal", out)
		}
	}
	broken := writeFunc(func([]byte) (int, error) { return 0, io.ErrClosedPipe })
	s := NewScreen(broken, file, func() int { return 20 })
	s.Draw(Bar{Done: 1, Total: 2})
	s.Notice("warning")
	s.Clear()
	if text, err := os.ReadFile(file.Name()); string(text) != "warning\n" || err != nil {
		t.Errorf("the other stream has %q, %v", text, err)
	}
}

// TestPlural: one is not several.
