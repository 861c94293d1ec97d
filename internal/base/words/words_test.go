package words

import (
	"math"
	"testing"
	"time"
)

func TestShort(t *testing.T) {
	for _, c := range []struct {
		n    float64
		want string
	}{
		{0, "0"}, {7, "7"}, {999, "999"}, {999.4, "999"}, {999.6, "1.00k"}, {1000, "1.00k"}, {9994, "9.99k"}, {9996, "10.0k"},
		{12345, "12.3k"}, {99960, "100k"}, {123456, "123k"}, {999500, "1.00M"}, {4.56e6, "4.56M"}, {7e9, "7.00G"}, {-12345, "-12.3k"},
		{math.NaN(), "NaN"}, {math.Inf(1), "+Inf"}, {4e21, "4000E"},
	} {
		if got := Short(c.n); got != c.want {
			t.Errorf("Short(%g) = %q, want %q", c.n, got, c.want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1: "-1", -999: "-999", -1000: "-1,000",
		math.MinInt64: "-9,223,372,036,854,775,808",
	} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1.0 MiB", 1 << 20: "1.0 MiB", 5 << 30: "5.0 GiB",
		math.MaxInt64: "8.0 EiB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 12 * time.Millisecond: "12ms", 99600 * time.Microsecond: "0.1s", 4200 * time.Millisecond: "4.2s",
		9960 * time.Millisecond: "10s", 59 * time.Second: "59s",
		59600 * time.Millisecond: "1m00s", 63 * time.Second: "1m03s", 3599600 * time.Millisecond: "1h00m",
		2*time.Hour + 5*time.Minute: "2h05m", 76 * time.Hour: "3d04h", math.MaxInt64: "106751d23h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestHarmless(t *testing.T) {
	for text, want := range map[string]string{
		"func main() {\n\treturn\n}": "func main() {\n\treturn\n}",
		"größer ≥ 日本":                "größer ≥ 日本",
		"\x1b[2Jgone":                "\uFFFD[2Jgone",
		"a\rb\x07\x00":               "a\uFFFDb\uFFFD\uFFFD",
		"\u009b31m":                  "\uFFFD31m", // the one-character escape
		"\x9b31m\xff":                "\uFFFD31m\uFFFD",
		"abc\u202edcba":              "abc\uFFFDdcba", // right to left from here
		"\x7f":                       "\uFFFD",
	} {
		if got := Harmless(text); got != want {
			t.Errorf("Harmless(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"größer":                    "größer",
		"a\nb\tc\r":                 "a\uFFFDb\uFFFDc\uFFFD",
		"a\u2028b\u2029c\x1b\u202e": "a\uFFFDb\uFFFDc\uFFFD\uFFFD",
	} {
		if got := OneLine(text); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", text, got, want)
		}
	}
}

// A text that is cut is valid and shows that it was.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		text  string
		bytes int
		want  string
	}{{"short", 5, "short"}, {"longer", 4, "long…"}, {"aé", 2, "a…"}, {"a\xffb", 9, "a\uFFFDb"}, {"", 0, ""}} {
		if got := Cut(c.text, c.bytes); got != c.want {
			t.Errorf("%q to %d bytes: %q, want %q", c.text, c.bytes, got, c.want)
		}
	}
}

// However a text is cut, it is edited as a whole.
func TestPlural(t *testing.T) {
	for _, c := range []struct {
		n          int
		noun, want string
	}{{1, "microbatch", "1 microbatch"}, {2, "microbatch", "2 microbatches"}, {0, "rank", "0 ranks"}, {1, "rank", "1 rank"}} {
		if got := Plural(c.n, c.noun); got != c.want {
			t.Errorf("%d of %s: %q, want %q", c.n, c.noun, got, c.want)
		}
	}
}

// TestNumbers: commas, no brackets.
func TestNumbers(t *testing.T) {
	for want, list := range map[string][]int{"": nil, "7": {7}, "14, 30": {14, 30}} {
		if got := Numbers(list); got != want {
			t.Errorf("Numbers(%v) = %q, want %q", list, got, want)
		}
	}
}
