package scheduler

import (
	"errors"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func readCSV(t testing.TB, text string) *Table {
	t.Helper()
	table, err := ReadCSV("table.csv", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return table
}

// TestPublishedCSV reads the files that PyTorch and torchtitan publish with their
// tests.
func TestPublishedCSV(t *testing.T) {
	for _, c := range []struct {
		file                        string
		placement                   Placement
		ranks, chunks, microbatches int
		makespan                    float64
		peak                        []int // to the W
		transfers                   int   // of each kind, 0: the file has none
		waits                       bool
		outOfOrder                  OutOfOrder
	}{
		{"pytorch_zb1p_2rank_2stagep_compute", Loop, 2, 4, 8, 49, []int{4, 4}, 0, false, OutOfOrder{}},
		{"pytorch_zb1p_2rank_2stagep_comms", Loop, 2, 4, 8, 49, []int{4, 4}, 24, false, OutOfOrder{}},
		{"torchtitan_example", Loop, 2, 4, 4, 27, []int{5, 3}, 12, false, OutOfOrder{}},
		{"torchtitan_interleaved1f1b_8ranks_16mb", Loop, 8, 16, 16, 117, []int{23, 21, 19, 17, 15, 13, 11, 9}, 15 * 16, false, OutOfOrder{}},
		// Written by torch 2.15.0 (testdata/torchtables.py in the root). In the second and third a
		// limit on what is under way moves the waits forward.
		{"torch215_interleaved1f1b_3ranks_2mb", Loop, 3, 9, 2, 30, []int{6, 6, 5}, 8 * 2, true, OutOfOrder{}},
		{"torch215_zerobubble_4ranks_2mb", Loop, 4, 4, 2, 11, []int{2, 2, 2, 2}, 3 * 2, true, OutOfOrder{}},
		{"torch215_zbv_2ranks_5mb", V, 2, 4, 5, 31, []int{4, 4}, 2 * 5, true, OutOfOrder{}},
		{"torch215_dualpipev_2ranks_8mb", V, 2, 4, 8, 50, []int{5, 5}, 2 * 8, true, OutOfOrder{}},
		{"torch215_loopedbfs_2ranks_3mb", Loop, 2, 8, 3, 39, []int{12, 12}, 7 * 3, true, OutOfOrder{WeightGrads: true}},
	} {
		t.Run(c.file, func(t *testing.T) {
			text := readFile(t, "testdata/"+c.file+".csv")
			table := readCSV(t, text)
			if table.NumRanks() != c.ranks || table.NumChunks != c.chunks || table.Microbatches != c.microbatches || table.Placement != c.placement {
				t.Errorf("%d ranks, %d chunks, %d microbatches, placement %v", table.NumRanks(), table.NumChunks, table.Microbatches, table.Placement)
			}
			if got := simulated(t, table, UnitCosts).Makespan; got != c.makespan {
				t.Errorf("makespan %v, want %v", got, c.makespan)
			}
			report := check(t, table)
			if !reflect.DeepEqual(report.PeakInFlight, c.peak) {
				t.Errorf("peak %v, want %v", report.PeakInFlight, c.peak)
			}
			if report.OutOfOrder != c.outOfOrder {
				t.Errorf("out of order: %+v, want %+v", report.OutOfOrder, c.outOfOrder)
			}

			// What was dropped follows from the order: the same cells come back,
			// if in other places.
			if c.transfers == 0 {
				return
			}
			waits := strings.Contains(text, "WAIT_SEND")
			want, got := transfers(text, waits), transfers(table.CSVWithCommunication(), waits)
			if waits != c.waits || !reflect.DeepEqual(got, want) {
				t.Errorf("transfers by row\n%v, the file has\n%v", got, want)
			}
			for o := sendF; o <= recvB; o++ {
				if n := len(regexp.MustCompile(`\d`+o.String()+`\d`).FindAllString(text, -1)); n != c.transfers {
					t.Errorf("%d %s, want %d", n, o, c.transfers)
				}
			}
		})
	}
}

// TestPublishedPeakToInputGradient: counted until the input gradient is there, zb1p's
// first rank holds as much, its second less.
func TestPublishedPeakToInputGradient(t *testing.T) {
	table := readCSV(t, readFile(t, "testdata/pytorch_zb1p_2rank_2stagep_compute.csv"))
	for r, want := range []int{4, 3} {
		held, peak := 0, 0
		for _, a := range table.Ranks[r] {
			switch a.Type {
			case F:
				held++
				peak = max(peak, held)
			case I, B:
				held--
			}
		}
		if peak != want {
			t.Errorf("rank %d holds %d, want %d", r, peak, want)
		}
	}
}

// transfers lists each row's sends and receives, and its waits for sends if asked, sorted.
func transfers(text string, waits bool) [][]string {
	var rows [][]string
	for line := range lines(text) {
		var row []string
		for _, c := range strings.Split(line, ",") {
			if a, err := parseCell(c); err == nil && (a.actions[0].Type.isTransfer() || waits && a.actions[0].Type.isWaitSend()) {
				row = append(row, c)
			}
		}
		slices.Sort(row)
		rows = append(rows, row)
	}
	return rows
}

const (
	plainCSV = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
	sentCSV  = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n" +
		"1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"
	waitedCSV = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1\n" +
		"1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1\n"
)

func TestReadCSVForms(t *testing.T) {
	want := generate(t, Spec{Schedule: OneFOneB, Ranks: 2, Chunks: 1, Microbatches: 2})
	want.Schedule = ""
	for _, text := range []string{
		plainCSV,
		strings.TrimSuffix(plainCSV, "\n"),
		strings.ReplaceAll(plainCSV, "\n", "\r\n"),
		strings.TrimSuffix(strings.ReplaceAll(plainCSV, "\n", "\r\n"), "\r\n"),
		"0F0,0F1,,,0B0,,0B1,\n,1F0,1B0,1F1,1B1,,,\n",                            // bubbles
		"0F0, 0F1 ,0B0\t,0B1\n1F0 , 1B0,  ,1F1,\u00a01B1\n",                     // spaces
		"\"0F0\",0F1,\" 0B0 \",0B1\n\"1F0\",\"1B0\",\"\",\"1F1\", \"1B1\" \r\n", // quotes
		"\ufeff" + plainCSV,
		"\ufeff\"0F0\"" + strings.TrimPrefix(plainCSV, "0F0"),
		sentCSV, waitedCSV,
		"0F0,0SEND_F0,0F1,0WAIT_SEND_F0,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0WAIT_SEND_F1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1WAIT_SEND_B0,1F1,1B1,1SEND_B1,1WAIT_SEND_B1\n",
		"0F0,0F1,0B0,0B1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n1F0,1B0,1F1,1B1,1REDUCE_GRAD,1WAIT_REDUCE_GRAD\n",
		"0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1\n1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n",
		"0UNSHARD,0F0,0F1,0B0,0B1,0RESHARD,0REDUCE_GRAD\n1F0,1B0,1F1,1B1\n",
		"0UNSHARD,0F0,0F1,0RESHARD,0UNSHARD,0B0,0B1\n1UNSHARD,1F0,1B0,1RESHARD,1UNSHARD,1F1,1B1,1REDUCE_GRAD,1RESHARD\n",
	} {
		if got := readCSV(t, text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q was read as %+v", text, got)
		}
	}
	if got := want.CSV(); got != plainCSV {
		t.Errorf("CSV writes %q", got)
	}
	if got := want.CSVWithCommunication(); got != waitedCSV {
		t.Errorf("CSVWithCommunication writes %q", got)
	}
}

// TestReadCSVPairs: a pair is one cell, and its forward may stand second.
func TestReadCSVPairs(t *testing.T) {
	text := generate(t, Spec{Schedule: DualPipeV, Ranks: 2, Chunks: 2, Microbatches: 4}).CSV()
	if !strings.Contains(text, "(2F2;1B0)OVERLAP_F_B") {
		t.Fatalf("no pair of 2F2 and 1B0 in\n%s", text)
	}
	turned := readCSV(t, strings.ReplaceAll(text, "(2F2;1B0)", " (1B0; 2F2)"))
	if got := turned.CSV(); got != text {
		t.Errorf("read as\n%s, want\n%s", got, text)
	}
	if turned.Placement != V {
		t.Errorf("placement %v", turned.Placement)
	}
}

func TestReadCSVForwardOnly(t *testing.T) {
	table := readCSV(t, "0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F0,1F0,1RECV_F1,1F1\n")
	if !table.ForwardOnly {
		t.Error("not forward-only")
	}
}

// TestReadCSVTooLong: the length is looked at before anything else.
func TestReadCSVTooLong(t *testing.T) {
	zeros := make([]byte, MaxTableBytes+1) // never touched, so no memory is taken
	text := unsafe.String(&zeros[0], len(zeros))
	if _, err := ReadCSV("a.csv", text); !errors.Is(err, ErrSyntax) ||
		err.Error() != "a.csv: syntax error: the file has 1073741825 bytes; the limit is 1073741824" {
		t.Errorf("ReadCSV says %v", err)
	}
}

// TestReadCSVUTF16: what a spreadsheet calls Unicode is named.
func TestReadCSVUTF16(t *testing.T) {
	for _, text := range []string{"\xff\xfe0\x00F\x000\x00", "\xfe\xff\x000\x00F\x000"} {
		if _, err := ReadCSV("a.csv", text); !errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), "UTF-16: save it as UTF-8") {
			t.Errorf("ReadCSV says %v", err)
		}
	}
}

// drawTable makes the table of any schedule.
func drawTable(t *rapid.T) *Table {
	for {
		s := Spec{
			Schedule:     rapid.SampledFrom(Schedules()).Draw(t, "schedule"),
			Ranks:        rapid.IntRange(1, 5).Draw(t, "ranks"),
			Microbatches: rapid.IntRange(1, 12).Draw(t, "microbatches"),
			ForwardOnly:  rapid.Bool().Draw(t, "forwardOnly"),
		}
		k, _ := s.kind()
		s.Chunks = rapid.IntRange(k.perRank[0], min(k.perRank[1], 3)).Draw(t, "chunks")
		if s.Schedule == None {
			s.Ranks = 1
		}
		table, err := Generate(s)
		if errors.Is(err, ErrSpec) {
			continue
		}
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		// What a file does not say. On one rank all placements are the same.
		table.Schedule = ""
		if s.Ranks == 1 {
			table.Placement = Loop
		}
		return table
	}
}

// TestCSVRoundTrip: a table that was written is read back, with communication and
// without.
func TestCSVRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table := drawTable(rt)
		for _, text := range []string{table.CSV(), table.CSVWithCommunication()} {
			got, err := ReadCSV("table.csv", text)
			if err != nil || !reflect.DeepEqual(got, table) {
				rt.Fatalf("%s was read as %+v, %v", text, got, err)
			}
		}
	})
}

// TestEveryScheduleAsCSV reads back a table of every schedule, and counts the ones
// with pairs.
func TestEveryScheduleAsCSV(t *testing.T) {
	pairs := 0
	for _, name := range Schedules() {
		s := Spec{Schedule: name, Ranks: 4, Chunks: DefaultChunks(name), Microbatches: 8}
		if name == None {
			s.Ranks = 1
		}
		table := generate(t, s)
		table.Schedule = ""
		for _, text := range []string{table.CSV(), table.CSVWithCommunication()} {
			if got := readCSV(t, text); !reflect.DeepEqual(got, table) {
				t.Errorf("%s: %s was read as %+v", name, text, got)
			}
			pairs += strings.Count(text, pairSuffix)
		}
	}
	if pairs == 0 {
		t.Error("no table has a pair")
	}
}

// TestEveryCellMatters: a file from which a cell is taken, or in which one stands
// twice, can't be read.
func TestEveryCellMatters(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table := drawTable(rt)
		text := table.CSV()
		if rapid.Bool().Draw(rt, "communication") {
			text = table.CSVWithCommunication()
		}
		rows := cellsOf(text)
		r := rapid.IntRange(0, len(rows)-1).Draw(rt, "row")
		i := rapid.IntRange(0, len(rows[r])-1).Draw(rt, "cell")
		if rapid.Bool().Draw(rt, "twice") {
			rows[r] = slices.Insert(rows[r], rapid.IntRange(0, len(rows[r])).Draw(rt, "to"), rows[r][i])
		} else if table.Microbatches > 1 && table.NumChunks > 1 {
			rows[r] = slices.Delete(rows[r], i, i+1)
		} else {
			return // what is gone may be gone everywhere: a smaller table is left
		}
		_, err := ReadCSV("", textOf(rows))
		if err == nil {
			rt.Fatalf("%s\nwas read, from\n%s", textOf(rows), text)
		}
		if !strings.HasPrefix(err.Error(), "row ") {
			rt.Fatalf("no row in front of %v", err)
		}
	})
}

// TestReadCSVLikeCheck: of tables with some cells exchanged, ReadCSV accepts those that
// Check accepts.
func TestReadCSVLikeCheck(t *testing.T) {
	accepted, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		rows := cellsOf(drawTable(rt).CSV())
		for range rapid.IntRange(1, 3).Draw(rt, "exchanges") {
			row := rows[rapid.IntRange(0, len(rows)-1).Draw(rt, "row")]
			i := rapid.IntRange(0, len(row)-1).Draw(rt, "first")
			j := min(len(row)-1, i+rapid.IntRange(0, 3).Draw(rt, "distance"))
			row[i], row[j] = row[j], row[i]
		}
		text := textOf(rows)
		parsed := parseTable(t, text)
		_, want := Check(parsed)
		got, err := ReadCSV("", text)
		if (want == nil) != (err == nil) {
			rt.Fatalf("%s\nCheck says %v, ReadCSV %v", text, want, err)
		}
		if err != nil {
			refused++
			return
		}
		accepted++
		if !reflect.DeepEqual(got, parsed) {
			rt.Fatalf("ReadCSV makes %+v from %+v", got, parsed)
		}
	})
	if accepted == 0 || refused == 0 {
		t.Errorf("%d tables were accepted, %d refused", accepted, refused)
	}
}

func cellsOf(text string) [][]string {
	var rows [][]string
	for line := range lines(text) {
		rows = append(rows, strings.Split(line, ","))
	}
	return rows
}

func textOf(rows [][]string) string {
	text := make([]string, len(rows))
	for i, row := range rows {
		text[i] = strings.Join(row, ",")
	}
	return strings.Join(text, "\n") + "\n"
}

func FuzzReadCSV(f *testing.F) {
	for _, seed := range []string{
		plainCSV, sentCSV, waitedCSV, "\ufeff\"0F0\", 0B0 ", "0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD", "", "\n", "0F0", "0F0,,0B0\r\n",
		"0F0,0I0,0W0,0REDUCE_GRAD\n", "67108863F67108863", "0F67108863,0B1",
		"0UNSHARD,0F0,0RESHARD,0UNSHARD,0B0\n", "0F0,(0F1;0B0)OVERLAP_F_B,0B1", "0F0,(0B0;0F1)OVERLAP_F_B,0B1",
		"0F0,3F0\n1F0,2F0", "0F0,2F0\n1F0", "0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0",
		"0F0,0BW0", "0F0,0B0 ", "0F0,0SEND_F0,0B0", "9SEND_F99999,0F0,0B0", "0F0,0B0\n\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		table, err := ReadCSV("", text)
		if err != nil {
			if !slices.ContainsFunc([]error{ErrSyntax, ErrTable, ErrRank, ErrDuplicate, ErrIncomplete, ErrOrder, ErrDeadlock},
				func(kind error) bool { return errors.Is(err, kind) }) {
				t.Fatalf("error %v has no kind", err)
			}
			return
		}
		report, err := Check(table)
		if err != nil {
			t.Fatalf("ReadCSV accepts what Check refuses: %v", err)
		}
		if _, err := (Machine{Costs: UnitCosts, Credits: &report.Credits}).Simulate(table); err != nil {
			t.Fatalf("a table that Check accepted does not run: %v", err)
		}
		for _, written := range []string{table.CSV(), table.CSVWithCommunication()} {
			again, err := ReadCSV("", written)
			if err != nil || !reflect.DeepEqual(again, table) {
				t.Fatalf("%q was written as %q, which was read as %+v, %v", text, written, again, err)
			}
		}
	})
}

func BenchmarkReadCSV(b *testing.B) {
	table, err := Generate(Spec{Ranks: 64, Chunks: 4, Microbatches: 512})
	if err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string]string{"plain": table.CSV(), "communication": table.CSVWithCommunication()} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := ReadCSV("", text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
