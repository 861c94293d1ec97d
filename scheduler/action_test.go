package scheduler

import (
	"errors"
	"strings"
	"testing"
)

func TestParseAction(t *testing.T) {
	good := map[string]Action{
		"0F0":        {Stage: 0, Type: F, Microbatch: 0},
		"12B34":      {Stage: 12, Type: B, Microbatch: 34},
		"3I7":        {Stage: 3, Type: I, Microbatch: 7},
		"10W0":       {Stage: 10, Type: W, Microbatch: 0},
		"0F67108863": {Stage: 0, Type: F, Microbatch: MaxActions - 1},
	}
	for text, want := range good {
		a, err := ParseAction(text)
		if err != nil || a != want {
			t.Errorf("ParseAction(%q) = %v, %v; want %v", text, a, err, want)
		}
		if a.String() != text {
			t.Errorf("%v is written as %q, want %q", want, a.String(), text)
		}
	}
	bad := []string{
		"", "F", "0", "0F", "F0", "00F0", "0F00", "0f0", "0F0 ", " 0F0", "0F-1", "+0F0", "0F0F0", "0BW0", "0FF0",
		"0SEND_F0", "0UNSHARD", "0F67108864", "0F4294967296", "٣F0", "0F٣", strings.Repeat("9", 1000) + "F0",
	}
	for _, text := range bad {
		a, err := ParseAction(text)
		if !errors.Is(err, ErrSyntax) {
			t.Errorf("ParseAction(%.20q) = %v, %v; want ErrSyntax", text, a, err)
		} else if len(err.Error()) > 200 {
			t.Errorf("ParseAction(%.20q): error of %d bytes", text, len(err.Error()))
		}
	}
}

func FuzzParseAction(f *testing.F) {
	for _, seed := range []string{"0F0", "12B34", "3I7", "10W0", "0SEND_F1", "00F0", "0F", "1é2", "99999999999F1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAction(text)
		if err != nil {
			if !errors.Is(err, ErrSyntax) {
				t.Fatalf("error %v is no ErrSyntax", err)
			}
			return
		}
		if a.String() != text {
			t.Fatalf("%q was read as %v", text, a)
		}
	})
}
