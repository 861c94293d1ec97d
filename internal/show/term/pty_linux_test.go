package term

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a pair of a terminal and the end that a person would sit at.
func terminal(t *testing.T) (person, screen *os.File) {
	t.Helper()
	open := func(name string) *os.File {
		f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			t.Skipf("no pseudo terminals here: %v", err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	person = open("/dev/ptmx")
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	return person, open("/dev/pts/" + strconv.Itoa(n))
}

// The bar is as wide as the terminal is at the moment, and 80 columns where it doesn't
// know. One that can't redraw a line gets none.
func TestWidthOfATerminal(t *testing.T) {
	person, screen := terminal(t)
	t.Setenv("TERM", "dumb")
	if !IsTerminal(screen) || Width(screen) != nil {
		t.Error("a dumb terminal gets a bar, or is none")
	}
	t.Setenv("TERM", "xterm")
	width := Width(screen)
	if width == nil {
		t.Fatal("no bar for a terminal")
	}
	for _, c := range []struct{ columns, want int }{{0, 80}, {40, 40}, {132, 132}} {
		if err := unix.IoctlSetWinsize(int(person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(c.columns)}); err != nil {
			t.Fatal(err)
		}
		if got := width(); got != c.want {
			t.Errorf("%d columns: a width of %d, want %d", c.columns, got, c.want)
		}
	}
}
