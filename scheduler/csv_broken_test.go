package scheduler

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestBrokenCSV: what ReadCSV says about files that can't be run. The texts of the
// errors are in testdata/broken_csv.golden, behind the files.
func TestBrokenCSV(t *testing.T) {
	// replaced spoils one of the good files.
	replaced := func(text string, oldNew ...string) string {
		for i := 0; i < len(oldNew); i += 2 {
			if strings.Count(text, oldNew[i]) != 1 {
				t.Fatalf("%d times %q in\n%s", strings.Count(text, oldNew[i]), oldNew[i], text)
			}
		}
		return strings.NewReplacer(oldNew...).Replace(text)
	}
	looped := generate(t, Spec{Ranks: 2, Chunks: 2, Microbatches: 2}).CSV()
	folded := generate(t, Spec{Schedule: ZBV, Ranks: 2, Chunks: 2, Microbatches: 2}).CSV()
	threeRows := generate(t, Spec{Ranks: 3, Chunks: 1, Microbatches: 2}).CSVWithCommunication()
	rowsOf := func(text string, numbers ...int) string {
		var kept []string
		for _, n := range numbers {
			kept = append(kept, strings.Split(text, "\n")[n])
		}
		return strings.Join(kept, "\n") + "\n"
	}

	var golden strings.Builder
	golden.WriteString("What ReadCSV says about files that can't be run: the file, then the error.\n")
	for _, c := range []struct {
		name, text string
		want       error
	}{
		// Cells.
		{"junk after a cell", replaced(plainCSV, "0B0", "0B0;"), ErrSyntax},
		{"a space in a cell", replaced(plainCSV, ",1B0", ",1 B0"), ErrSyntax},
		{"a leading zero", replaced(plainCSV, "1F1", "1F01"), ErrSyntax},
		{"an unknown type", replaced(plainCSV, "1F1", "1X1"), ErrSyntax},
		{"no microbatch", replaced(plainCSV, "1B1", "1B"), ErrSyntax},
		{"a microbatch too many", "0UNSHARD0," + plainCSV, ErrSyntax},
		{"the dialect before November 2024", "0F0,,0BW0\n", ErrSyntax},
		{"a quotation mark that is not closed", replaced(plainCSV, "1B1", `"1B1`), ErrSyntax},
		{"quotes around two cells", replaced(plainCSV, "1F0,1B0", `"1F0,1B0"`), ErrSyntax},
		{"semicolons between cells", strings.ReplaceAll(plainCSV, ",", ";"), ErrSyntax},
		{"tabs between cells", strings.ReplaceAll(plainCSV, ",", "\t"), ErrSyntax},
		{"a byte order mark in the middle", replaced(plainCSV, "1F0", "\ufeff1F0"), ErrSyntax},
		{"a pair of forwards", "0F0,(0F1;0F2)OVERLAP_F_B\n", ErrSyntax},
		{"a pair of one visit", "0F0,(0F1;0B1)OVERLAP_F_B,0B0\n", ErrSyntax},
		{"a number above all limits", "0F0,0B0,0F67108864\n", ErrSyntax},
		{"an empty row", replaced(plainCSV, "\n1F0", "\n\n1F0"), ErrSyntax},
		{"a row of bubbles", plainCSV + ",,\n", ErrSyntax},
		{"an empty file", "", ErrSyntax},

		// Rows.
		{"a missing row in the middle", rowsOf(threeRows, 0, 2), ErrIncomplete},
		{"a missing first row", rowsOf(threeRows, 1, 2), ErrIncomplete},
		{"a missing last row", rowsOf(threeRows, 0, 1), ErrTable},
		{"exchanged rows", rowsOf(plainCSV, 1, 0), ErrRank},
		{"an action on the wrong row", replaced(looped, "2B1", "3B1"), ErrRank},
		{"an action on the wrong row of a V", replaced(folded, ",2F0", "", ",3F0", ",2F0,3F0"), ErrRank},
		{"chunks that fit no placement", "0F0,2F0,4F0,0B0,2B0,4B0\n1F0,3F0,1B0,3B0\n", ErrTable},

		// Actions.
		{"an action twice", replaced(plainCSV, "0B0,0B1", "0B0,0F1,0B1"), ErrDuplicate},
		{"B and W of a visit", replaced(plainCSV, "1B0", "1B0,1W0"), ErrDuplicate},
		{"a missing action", replaced(plainCSV, "1B0,", ""), ErrIncomplete},
		{"a missing action at the end, behind bubbles", replaced(plainCSV, ",1B1", ",,,"), ErrIncomplete},
		{"a missing weight gradient", "0F0,0I0,0F1,0B1\n", ErrIncomplete},
		{"a microbatch that claims many", "0F0,0B0,0F60000000\n", ErrIncomplete},
		{"a backward before its forward", replaced(plainCSV, "1F1,1B1", ",1B1,,1F1"), ErrOrder},
		{"W before I", "0F0,,0W0,0I0\n", ErrOrder},
		{"ranks that wait for each other", "0F1,0B1,0F0,0B0\n1F0,1B0,1F1,1B1\n", ErrDeadlock},
		{"a rank that waits for itself", "3F0,0F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", ErrDeadlock},
		{"a pair that waits for itself", "0F0,0F1,1F0,(1F1;0B0)OVERLAP_F_B,1B0,1B1,0B1\n", ErrDeadlock},

		// Sends and receives.
		{"a send without receive", replaced(sentCSV, "1RECV_F1,", ""), ErrIncomplete},
		{"a receive without send", replaced(sentCSV, ",1SEND_B1", ""), ErrIncomplete},
		{"neither send nor receive", replaced(sentCSV, "1RECV_F1,", "", "0SEND_F1,", ""), ErrIncomplete},
		{"one send only", replaced(plainCSV, "0F0", "0F0,0SEND_F0"), ErrIncomplete},
		{"a send twice", replaced(sentCSV, "0SEND_F1", "0SEND_F1,0SEND_F0"), ErrDuplicate},
		{"a receive twice", replaced(sentCSV, "1F1", "1RECV_F0,1F1"), ErrDuplicate},
		{"a send before its action", replaced(sentCSV, "1B0,1SEND_B0", "1SEND_B0,1B0"), ErrOrder},
		{"a receive after its action", replaced(sentCSV, "1RECV_F1,1F1", "1F1,1RECV_F1"), ErrOrder},
		{"a send on the wrong rank", replaced(sentCSV, "1SEND_B0", "1SEND_B0,0SEND_F0", "0F0,0SEND_F0", "0F0"), ErrRank},
		{"a send of the last chunk", replaced(sentCSV, "1F1", "1F1,1SEND_F1"), ErrTable},
		{"a receive of the first chunk", "0RECV_F0," + sentCSV, ErrTable},
		{"a send within a rank", replaced(folded, "1F0", "1F0,1SEND_F0"), ErrTable},
		{"a send of a chunk that is not there", replaced(sentCSV, "1F1", "1F1,3SEND_F1"), ErrTable},
		{"a send of a microbatch that is not there", replaced(sentCSV, "1B1", "1B1,1SEND_B2"), ErrTable},
		{"a gradient in a forward-only table", "0F0,0RECV_B0\n1F0\n", ErrTable},
		{"a wait without send", replaced(plainCSV, "0F0", "0F0,0WAIT_SEND_F0"), ErrOrder},
		{"a wait before its send", replaced(waitedCSV, "0SEND_F0,0F1", "0F1", ",0B0,0WAIT_SEND_F0", ",0WAIT_SEND_F0,0SEND_F0,0B0"), ErrOrder},
		{"a wait twice", replaced(waitedCSV, ",1WAIT_SEND_B0", ",1WAIT_SEND_B0,1WAIT_SEND_B0"), ErrDuplicate},
		{"a send without wait beside others", replaced(waitedCSV, ",0WAIT_SEND_F1", ""), ErrIncomplete},
		{"a wait on the wrong rank", replaced(waitedCSV, ",0WAIT_SEND_F0", "", ",1WAIT_SEND_B0", ",0WAIT_SEND_F0,1WAIT_SEND_B0"), ErrRank},
		{"a wait of the last chunk", replaced(waitedCSV, ",1WAIT_SEND_B0", ",1WAIT_SEND_B0,1WAIT_SEND_F0"), ErrTable},
		{"a wait within a rank", replaced(folded, "1F0", "1F0,1WAIT_SEND_F0"), ErrTable},
		{"a wait that its receiver waits for", "0F0,0SEND_F0,0WAIT_SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0WAIT_SEND_F1\n" +
			"1RECV_F1,1F1,1RECV_F0,1F0,1B0,1SEND_B0,1B1,1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1\n", ErrDeadlock},
		{"receives before sends in a cycle", "0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", ErrDeadlock},

		// Parameters and gradients.
		{"UNSHARD after the first use", replaced(plainCSV, "0F1", "0UNSHARD,0F1"), ErrOrder},
		{"UNSHARD twice", "0UNSHARD," + replaced(plainCSV, "0F1", "0UNSHARD,0F1"), ErrDuplicate},
		{"UNSHARD on the wrong rank", "1UNSHARD," + plainCSV, ErrRank},
		{"RESHARD without UNSHARD", replaced(plainCSV, "0B1", "0B1,0RESHARD"), ErrOrder},
		{"RESHARD twice", "0UNSHARD," + replaced(plainCSV, "0B1", "0B1,0RESHARD,0RESHARD"), ErrDuplicate},
		{"RESHARD before the last use", "0UNSHARD," + replaced(plainCSV, "0B1", "0RESHARD,0B1"), ErrOrder},
		{"RESHARD of a chunk that is not there", replaced(plainCSV, "1B1", "1B1,2RESHARD"), ErrTable},
		{"REDUCE_GRAD before the last gradient", replaced(plainCSV, "0B1", "0REDUCE_GRAD,0B1"), ErrOrder},
		{"REDUCE_GRAD twice", replaced(plainCSV, "1B1", "1B1,1REDUCE_GRAD,1REDUCE_GRAD"), ErrDuplicate},
		{"REDUCE_GRAD in a forward-only table", "0F0,0REDUCE_GRAD\n", ErrTable},
		{"WAIT_REDUCE_GRAD without REDUCE_GRAD", replaced(plainCSV, "1B1", "1B1,1WAIT_REDUCE_GRAD"), ErrOrder},
		{"WAIT_REDUCE_GRAD before REDUCE_GRAD", replaced(plainCSV, "1B1", "1B1,1WAIT_REDUCE_GRAD,1REDUCE_GRAD"), ErrOrder},
		{"WAIT_REDUCE_GRAD twice", replaced(plainCSV, "1B1", "1B1,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1WAIT_REDUCE_GRAD"), ErrDuplicate},
		{"REDUCE_GRAD without wait beside another", replaced(plainCSV, "0B1", "0B1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD", "1B1", "1B1,1REDUCE_GRAD"),
			ErrIncomplete},
	} {
		_, err := ReadCSV("table.csv", c.text)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: ReadCSV says %v, want %v", c.name, err, c.want)
			continue
		}
		if !strings.HasPrefix(err.Error(), "table.csv: row ") || !strings.Contains(err.Error(), ", column ") {
			t.Errorf("%s: no row and column in front of %v", c.name, err)
		}
		golden.WriteString("\n# " + c.name + "\n" + c.text)
		if !strings.HasSuffix(c.text, "\n") {
			golden.WriteString("\n")
		}
		golden.WriteString("----\n" + err.Error() + "\n")
	}
	compareGolden(t, "testdata/broken_csv.golden", golden.String())
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := readFile(t, file); got != want {
		t.Errorf("differs from %s (go test -update rewrites it): %s", file, firstDifference(want, got))
	}
}

// TestLongCircleInCSV: an error about many ranks stays short.
func TestLongCircleInCSV(t *testing.T) {
	rows := cellsOf(generate(t, Spec{Ranks: 10, Chunks: 2, Microbatches: 10}).CSV())
	rows[0] = append([]string{"10F0"}, strings.Split(strings.Replace(strings.Join(rows[0], ","), ",10F0", "", 1), ",")...)
	_, err := ReadCSV("table.csv", textOf(rows))
	if !errors.Is(err, ErrDeadlock) || !strings.Contains(err.Error(), "and so on over 2 more ranks") {
		t.Errorf("got %v", err)
	}
}
