package scheduler

import (
	"errors"
	"strings"
	"testing"
)

func TestParseCell(t *testing.T) {
	f5, b3 := Action{Chunk: 0, Type: F, Microbatch: 5}, Action{Chunk: 7, Type: B, Microbatch: 3}
	first := f5
	first.Overlap = true
	good := map[string]csvCell{
		"0F5":                     {actions: [2]Action{f5}, width: 1},
		"7B3":                     {actions: [2]Action{b3}, width: 1},
		"(0F5;7B3)OVERLAP_F_B":    {actions: [2]Action{first, b3}, width: 2},
		"(7B3;0F5)OVERLAP_F_B":    {actions: [2]Action{first, b3}, width: 2},
		"( 0F5; 7B3 )OVERLAP_F_B": {actions: [2]Action{first, b3}, width: 2},
		"(0F5;7I3)OVERLAP_F_B":    {actions: [2]Action{first, {Chunk: 7, Type: I, Microbatch: 3}}, width: 2},
		"0SEND_F12":               {actions: [2]Action{{Type: sendF, Microbatch: 12}}, width: 1},
		"3RECV_F0":                {actions: [2]Action{{Chunk: 3, Type: recvF}}, width: 1},
		"3SEND_B4":                {actions: [2]Action{{Chunk: 3, Type: sendB, Microbatch: 4}}, width: 1},
		"67108863RECV_B67108863":  {actions: [2]Action{{Chunk: MaxActions - 1, Type: recvB, Microbatch: MaxActions - 1}}, width: 1},
		"3UNSHARD":                {actions: [2]Action{{Chunk: 3, Type: unshard}}, width: 1},
		"10RESHARD":               {actions: [2]Action{{Chunk: 10, Type: reshard}}, width: 1},
		"0REDUCE_GRAD":            {actions: [2]Action{{Type: reduceGrad}}, width: 1},
		"0WAIT_REDUCE_GRAD":       {actions: [2]Action{{Type: waitReduceGrad}}, width: 1},
		"3WAIT_SEND_F4":           {actions: [2]Action{{Chunk: 3, Type: waitSendF, Microbatch: 4}}, width: 1},
		"3WAIT_SEND_B4":           {actions: [2]Action{{Chunk: 3, Type: waitSendB, Microbatch: 4}}, width: 1},
	}
	for text, want := range good {
		c, err := parseCell(text)
		if err != nil || c != want {
			t.Errorf("parseCell(%q) = %+v, %v; want %+v", text, c, err, want)
		}
		if got := c.actions[0].String(); c.width == 1 && got != text {
			t.Errorf("%q is written as %s", text, got)
		}
	}

	for text, reason := range map[string]string{
		"":          "chunk: no number",
		" 0F0":      "a space inside",
		"0F0 ":      "a space inside",
		"+0F0":      "chunk: no number",
		"٣F0":       "chunk: no number",
		"0F٣":       "unknown type \"F٣\"",
		"0F0x":      `unexpected "x" after the microbatch`,
		"0F0\r":     "a carriage return inside",
		"0F0\t1F0":  "a tab inside",
		"0F0;1F0":   "a semicolon inside",
		"\ufeff0F0": "a byte order mark (U+FEFF) inside",
		"00F0":      "chunk: 00 has a leading zero",
		"0F00":      "microbatch: 00 has a leading zero",
		"0F":        "microbatch: no number",
		"F0":        "chunk: no number",
		"0":         `unknown type "", want F, I, W, B, SEND_F, RECV_F, SEND_B, RECV_B, WAIT_SEND_F, WAIT_SEND_B, UNSHARD, RESHARD, REDUCE_GRAD or WAIT_REDUCE_GRAD after the chunk`,
		"0f0":       `unknown type "f"`,
		"0SEND_F":   "microbatch: no number",
		"0SEND0":    `unknown type "SEND"`,
		"0SEND_F-1": `unknown type "SEND_F-"`,
		"0UNSHARD0": `unexpected "0" after UNSHARD, which has no microbatch`,
		"0RESHARD ": "a space inside",
		`"0F0"`:     "a quotation mark inside",
		"0BW0":      "Write B for BW, and I for the old B",

		"(":                          "\")OVERLAP_F_B\" is missing at the end",
		"(0F0;0B1)":                  "\")OVERLAP_F_B\" is missing at the end",
		"(0F0;0B1)OVERLAP_F_B2":      "\")OVERLAP_F_B\" is missing at the end",
		"()OVERLAP_F_B":              "the pair has 1 actions, want 2",
		"(0F0)OVERLAP_F_B":           "the pair has 1 actions, want 2",
		"(0F0;)OVERLAP_F_B":          "the pair has 1 actions, want 2",
		"(0F0;0B1;0F2)OVERLAP_F_B":   "the pair has 3 actions, want 2",
		"(;0B1)OVERLAP_F_B":          "first action: chunk: no number",
		"(0F0;0BW1)OVERLAP_F_B":      "Write B for BW",
		"(0F0;0SEND_F1)OVERLAP_F_B":  `second action: unknown type "SEND_F", want F, I, W or B`,
		"((0F0;0B1)OVERLAP_F_B;1B1)": "\")OVERLAP_F_B\" is missing at the end",
		"(0F0;0F1)OVERLAP_F_B":       "a pair must be an F and a B or I",
		"(0F0;0W1)OVERLAP_F_B":       "a pair must be an F and a B or I",
		"(0B0;0I1)OVERLAP_F_B":       "a pair must be an F and a B or I",
		"(2F1;2B1)OVERLAP_F_B":       "2B1 depends on 2F1, so they cannot run together",

		strings.Repeat("9", 1000) + "F0":     "is above the limit of 67108863",
		"0" + strings.Repeat("x", 1000):      "xxx…\", want F",
		"(" + strings.Repeat("0F0;", 1000):   "\")OVERLAP_F_B\" is missing at the end",
		"0UNSHARD" + strings.Repeat("1", 99): "1…\" after UNSHARD",
	} {
		c, err := parseCell(text)
		switch {
		case !errors.Is(err, ErrSyntax):
			t.Errorf("parseCell(%.20q) = %+v, %v; want ErrSyntax", text, c, err)
		case !strings.Contains(err.Error(), reason):
			t.Errorf("parseCell(%.20q): %v, want %s", text, err, reason)
		case len(err.Error()) > 300:
			t.Errorf("parseCell(%.20q): error of %d bytes", text, len(err.Error()))
		}
	}
}

func FuzzParseCell(f *testing.F) {
	for _, seed := range []string{"0F0", "12B34", "3I7", "10W0", "0SEND_F1", "00F0", "0F", "1é2", "99999999999F1", "3UNSHARD",
		"(0F1;0B0)OVERLAP_F_B"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCell(text)
		if err != nil {
			if !errors.Is(err, ErrSyntax) {
				t.Fatalf("error %v is no ErrSyntax", err)
			}
			return
		}
		if got := c.actions[0].String(); c.width == 1 && got != text {
			t.Fatalf("%q was read as %s", text, got)
		}
	})
}
