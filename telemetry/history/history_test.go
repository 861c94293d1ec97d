package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/telemetry"
)

const file = "metrics.jsonl"

func openFolder(t interface{ Fatal(...any) }, dir string) *folder.Folder {
	fsys, err := folder.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return fsys
}

// kept are the records that count: those of a step that came again, and the ones behind them, don't.
func kept(all []telemetry.Record) []telemetry.Record {
	var stack []telemetry.Record
	for _, r := range all {
		for len(stack) > 0 && stack[len(stack)-1].Step >= r.Step {
			stack = stack[:len(stack)-1]
		}
		stack = append(stack, r)
	}
	return stack
}

// point is a step and a value, to be compared by its bits.
type point struct {
	step int
	bits uint64
}

func pointOf(step int, v float64) point {
	if math.IsNaN(v) {
		v = math.NaN()
	}
	return point{step, math.Float64bits(v)}
}

// wanted are the series of some records.
func wanted(all []telemetry.Record) map[string][]point {
	want := map[string][]point{}
	for _, r := range all {
		for k := range telemetry.Figures {
			f := &telemetry.Figures[k]
			if v := f.Get(&r); v != nil {
				want[f.Name] = append(want[f.Name], pointOf(r.Step, *v))
			}
		}
		for name, v := range r.Metrics {
			want[Metrics+name] = append(want[Metrics+name], pointOf(r.Step, v))
		}
		for name, v := range r.ValMetrics {
			want[ValMetrics+name] = append(want[ValMetrics+name], pointOf(r.Step, v))
		}
		for name, v := range r.ValLosses {
			want[ValLosses+name] = append(want[ValLosses+name], pointOf(r.Step, v))
		}
	}
	return want
}

func series1(h *History, name string) []point {
	steps, values := h.Figures(name)
	var all []point
	for i, v := range values {
		all = append(all, pointOf(steps[i], v))
	}
	return all
}

// same compares a history with records.
func same(t interface{ Fatalf(string, ...any) }, h *History, records []telemetry.Record) {
	all := kept(records)
	if h.Len() != len(all) {
		t.Fatalf("%d rows, want %d", h.Len(), len(all))
	}
	want := wanted(all)
	names := h.Names()
	if got, want := slices.Sorted(slices.Values(names)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, want) {
		t.Fatalf("series %q, want %q", got, want)
	}
	for _, name := range names {
		if got := series1(h, name); !slices.Equal(got, want[name]) {
			t.Fatalf("%s: %v, want %v", name, got, want[name])
		}
	}
	var skipped []int
	tokens, seconds := int64(math.MinInt64), 0.0
	for i, r := range all {
		if r.Skipped {
			skipped = append(skipped, r.Step)
		}
		tokens = max(tokens, r.Tokens)
		if r.StepMS != nil && *r.StepMS > 0 {
			seconds += *r.StepMS / 1000
		}
		if h.rows.x(BySteps, i) != float64(r.Step) || h.rows.x(ByTokens, i) != float64(tokens) || h.rows.x(BySeconds, i) != seconds {
			t.Fatalf("row %d is at %v, %v and %v, want %v, %v and %v", i, h.rows.x(BySteps, i), h.rows.x(ByTokens, i), h.rows.x(BySeconds, i),
				r.Step, tokens, seconds)
		}
	}
	if got := h.Skipped(); !slices.Equal(got, skipped) {
		t.Fatalf("skipped %v, want %v", got, skipped)
	}
	last, ok := h.Last()
	if ok != (len(all) > 0) {
		t.Fatalf("a last row: %v", ok)
	}
	if ok {
		got, err := json.Marshal(last)
		want, err2 := json.Marshal(all[len(all)-1])
		if errors.Join(err, err2) != nil || !bytes.Equal(got, want) {
			t.Fatalf("the last row is %s, want %s; %v, %v", got, want, err, err2)
		}
	}
}

// anyLine is a line of a file: a record as it is written, or something like one.
func anyLine(step int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		figure := func(name string) *float64 {
			return rapid.Ptr(rapid.OneOf(rapid.Float64(), rapid.Map(rapid.Uint64(), math.Float64frombits), rapid.Float64Range(0, 10)), true).Draw(t,
				name)
		}
		metrics := func(name string) map[string]float64 {
			return rapid.OneOf(rapid.Just(map[string]float64(nil)), rapid.MapOfN(rapid.OneOf(rapid.SampledFrom([]string{"accuracy", "äöü", "a<b",
				`"`, ""}), rapid.String()),
				rapid.Map(rapid.Uint64(), math.Float64frombits), 0, 3)).Draw(t, name)
		}
		r := telemetry.Record{
			Step: step, Loss: figure("loss"), MTPLoss: figure("mtp"), ValLoss: figure("val"), GradNorm: figure("norm"), LR: figure("lr"),
			Tokens: rapid.Int64().Draw(t, "tokens"), TokensPerS: figure("speed"), StepMS: figure("ms"), BubblePct: figure("bubble"),
			PeakPct:      figure("peak"),
			PeakMemBytes: rapid.Int64().Draw(t, "mem"), Skipped: rapid.Bool().Draw(t, "skipped"),
			Update:  rapid.SampledFrom([]string{"", "kept", "rolled_back", "waited"}).Draw(t, "update"),
			Metrics: metrics("metrics"), ValMetrics: metrics("val metrics"), ValLosses: metrics("val losses"),
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		line := string(text)
		switch rapid.IntRange(0, 19).Draw(t, "kind") {
		case 0:
			line = strings.ReplaceAll(line, ":", ": ")
		case 1:
			line = strings.TrimSuffix(line, "}") + `,"later":true,"mfu":1.5e3,"of":null,"name":"a b","nested":{"a":[1]}}`
		case 2:
			line = strings.Replace(line, `"loss"`, `"Loss"`, 1)
		case 3:
			line = strings.TrimSuffix(line, "}") + `,"loss":1,"loss":2}`
		case 4:
			line += "\r"
		case 5:
			line = fmt.Sprintf(`{"step":%d,"loss":-0.0,"grad_norm":1E+2,"lr":0,"later":false,"other":"x"}`, step)
		case 6:
			line = fmt.Sprintf(`{"step":%d,"metrics":{"a":1,"a":2,"b":null},"val_metrics":{}}`, step)
		}
		return line
	})
}

// anyText is a file of such lines. Steps go on, with gaps; now and then they come again or go back.
func anyText(rows int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		var text strings.Builder
		step := rapid.IntRange(0, 3).Draw(t, "first")
		for range rapid.IntRange(0, rows).Draw(t, "rows") {
			text.WriteString(anyLine(step).Draw(t, "line") + "\n")
			if step += rapid.SampledFrom([]int{1, 1, 1, 1, 1, 1, 2, 7, 0, -1, -5}).Draw(t, "stride"); step < 0 {
				step = 0
			}
		}
		switch rapid.IntRange(0, 4).Draw(t, "end") {
		case 0:
			return text.String() + `{"step":9,"lo`
		case 1:
			return text.String() + fmt.Sprintf(`{"step":%d}`, step)
		case 2:
			return text.String() + "\x00\x00"
		}
		return text.String()
	})
}

// TestAsRead: the figures of a file are those of telemetry.Read, however it is cut into blocks.
func TestAsRead(t *testing.T) {
	dir := t.TempDir()
	fsys := openFolder(t, dir)
	defer fsys.Close() //nolint:errcheck // of a test
	rapid.Check(t, func(t *rapid.T) {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(anyText(60).Draw(t, "text")), 0o644); err != nil {
			t.Fatal(err)
		}
		records, err := telemetry.Read(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		h, err := open(fsys, file, rapid.SampledFrom([]int{1, 100, 1000, blockBytes}).Draw(t, "block"))
		if err != nil {
			t.Fatal(err)
		}
		same(t, h, records)
	})
}

// TestFollowed: a file that grows by pieces, or is replaced, has the figures that it has at the time.
func TestFollowed(t *testing.T) {
	dir := t.TempDir()
	fsys := openFolder(t, dir)
	defer fsys.Close() //nolint:errcheck // of a test
	path := filepath.Join(dir, file)
	rapid.Check(t, func(t *rapid.T) {
		write := func(text string, flags int) {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flags, 0o644)
			if err == nil {
				_, err = f.WriteString(text)
			}
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
		write("", os.O_TRUNC)
		h, err := open(fsys, file, 300)
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 2).Draw(t, "files") {
			text := anyText(20).Draw(t, "text")
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0: // as a run that goes on does
				if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // which an empty text before has left away
					t.Fatal(err)
				}
			case 1:
				write("", os.O_TRUNC)
			case 2: // in place, without a moment at which it is empty
				n := len(text) / 2
				write(text[:n], os.O_TRUNC)
				text = text[n:]
			}
			for text != "" {
				n := rapid.IntRange(1, min(len(text), 6000)).Draw(t, "bytes")
				write(text[:n], os.O_APPEND)
				text = text[n:]
				records, err := telemetry.Read(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := h.Refresh(); err != nil {
					t.Fatal(err)
				}
				same(t, h, records)
				if err := h.Refresh(); err != nil { // nothing is new
					t.Fatal(err)
				}
			}
		}
	})
}

func TestBadRows(t *testing.T) {
	for name, text := range map[string]string{
		"middle":        `{"step":0}` + "\n" + `{"step":1,` + "\n" + `{"step":2}` + "\n",
		"empty":         `{"step":0}` + "\n\n",
		"long":          `{"step":0}` + "\n" + strings.Repeat(" ", telemetry.LimitLineBytes) + `{"step":1}`,
		"long and more": `{"step":0}` + "\n" + strings.Repeat(" ", 3*telemetry.LimitLineBytes) + "\n" + `{"step":1}` + "\n",
		"just so":       `{"step":0}` + strings.Repeat(" ", telemetry.LimitLineBytes-len(`{"step":0}`)-1) + "\n" + `{"step":1}`,
		"negative":      `{"step":-1}` + "\n",
		"no step":       `{"loss":1}` + "\n",
		"a large one":   `{"step":1,"loss":1e999}` + "\n",
		"leading zero":  `{"step":01}` + "\n",
		"two":           `{"step":1}{"step":2}` + "\n",
		"a name":        `{"step":1,"metrics":{"a":1,}}` + "\n",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		records, want := telemetry.Read(filepath.Join(dir, file))
		fsys := openFolder(t, dir)
		for _, block := range []int{1, 20, blockBytes} {
			h, err := open(fsys, file, block)
			if fmt.Sprint(err) != fmt.Sprint(want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
			if err == nil {
				same(t, h, records)
			}
		}
		if err := fsys.Close(); err != nil {
			t.Fatal(err)
		}
	}
	fsys := openFolder(t, t.TempDir())
	defer fsys.Close() //nolint:errcheck // of a test
	if _, err := Open(fsys, file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestBadRowLater: an error leaves what was read, and goes away with its cause.
func TestBadRowLater(t *testing.T) {
	dir := t.TempDir()
	fsys := openFolder(t, dir)
	defer fsys.Close() //nolint:errcheck // of a test
	path := filepath.Join(dir, file)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const good = `{"step":1,"loss":3}` + "\n" + `{"step":2,"loss":2}` + "\n"
	write(good)
	h, err := Open(fsys, file)
	if err != nil {
		t.Fatal(err)
	}
	write(good + `{"step":3,"loss":1}` + "\n" + "[]\n")
	if err := h.Refresh(); err == nil || !strings.Contains(err.Error(), "row 4: ") || h.Len() != 2 {
		t.Errorf("%v, with %d rows", err, h.Len())
	}
	write(good + `{"step":3,"loss":1}` + "\n")
	if err := h.Refresh(); err != nil || h.Len() != 3 {
		t.Errorf("%v, with %d rows", err, h.Len())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := h.Refresh(); !errors.Is(err, fs.ErrNotExist) || h.Len() != 3 {
		t.Errorf("%v, with %d rows", err, h.Len())
	}
}

func TestTooManyMetrics(t *testing.T) {
	dir := t.TempDir()
	var text strings.Builder
	for i := range LimitMetrics + 1 {
		fmt.Fprintf(&text, `{"step":%d,"metrics":{"m%d":1}}`+"\n", i, i)
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	fsys := openFolder(t, dir)
	defer fsys.Close() //nolint:errcheck // of a test
	for _, block := range []int{1000, blockBytes} {
		if _, err := open(fsys, file, block); err == nil || !strings.Contains(err.Error(), "4097 names of metrics, the limit is 4096") {
			t.Errorf("%v", err)
		}
	}
}

// FuzzScan: what the scanner takes for a record is one, and says the same to encoding/json.
func FuzzScan(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("..", "testdata", "metrics.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(golden) {
		f.Add(bytes.TrimSuffix(line, []byte("\n")))
	}
	for _, line := range []string{
		`{"step":1,"metrics":{"accuracy":0.5,"ü":null},"val_metrics":{"accuracy":1}}`, `{"step":1,"step":2}`, `{"step":1,"Loss":2}`,
		`{"step":1,"loss":1e999}`, `{"step":01}`, `{"step":1.0}`, `{"step":-0}`, `{"step":1,"later":{"a":[1]},"x":1e999}`,
		`{"step":1,"metrics":null}`,
		`{"step":1,"update":"a\u0062"}`, `{"step":1}}`, `{"step":123456789012345678901}`, `{"step":1,"metrics":{"a":1,"a":2}}`, `{`, ``,
		`{"step":1,"\u212a":2}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.IndexByte(line, '\n') >= 0 {
			return // it is several
		}
		var got, want row
		var record telemetry.Record
		err := record.UnmarshalJSON(line)
		if !got.scan(append(bytes.Clone(line), '\n')) {
			return
		}
		if err != nil {
			t.Fatalf("%q is taken for a record: %v", line, err)
		}
		want.take(&record)
		compare(t, line, &got, &want)
	})
}

// compare compares two rows as a table would have them.
func compare(t *testing.T, line []byte, got, want *row) {
	t.Helper()
	a, b := newTable(), newTable()
	if err := errors.Join(a.add(got), b.add(want)); err != nil {
		return // too many metrics
	}
	ha, hb := &History{rows: a}, &History{rows: b}
	if got, want := ha.Names(), hb.Names(); !slices.Equal(got, want) || a.steps[0] != b.steps[0] || a.tokens[0] != b.tokens[0] ||
		len(a.skipped) != len(b.skipped) {
		t.Fatalf("%q: step %d, %d tokens, skipped %v, %q; want %d, %d, %v, %q", line, a.steps[0], a.tokens[0], a.skipped, got, b.steps[0],
			b.tokens[0], b.skipped, want)
	}
	for _, name := range ha.Names() {
		if got, want := series1(ha, name), series1(hb, name); !slices.Equal(got, want) {
			t.Fatalf("%q: %s is %v, want %v", line, name, got, want)
		}
	}
}

// TestScanned: lines as they are written need no other reader.
func TestScanned(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join("..", "testdata", "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	golden = append(golden, `{"step":4,"loss":1.25,"metrics":{"accuracy":0.5,"ü":null},"val_metrics":{"accuracy":1},"later":1}`+"\n"...)
	for line := range bytes.Lines(golden) {
		var r row
		if !r.scan(line) {
			t.Errorf("not scanned: %s", line)
		}
	}
}

// TestAdded: records that were added one by one give what their file gives.
func TestAdded(t *testing.T) {
	dir := t.TempDir()
	fsys := openFolder(t, dir)
	defer fsys.Close() //nolint:errcheck // of a test
	rapid.Check(t, func(t *rapid.T) {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(anyText(60).Draw(t, "text")), 0o644); err != nil {
			t.Fatal(err)
		}
		h, err := Open(fsys, file)
		if err != nil {
			t.Fatal(err)
		}
		records, err := telemetry.Read(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		added := New(1000)
		for _, r := range records {
			if err := added.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := added.Refresh(); err != nil || !slices.Equal(added.Names(), h.Names()) || !slices.Equal(added.Skipped(), h.Skipped()) ||
			!slices.Equal(added.rows.seconds, h.rows.seconds) {
			t.Fatalf("%v, %v, %v: names %v, want %v", err, added.Skipped(), added.rows.seconds, added.Names(), h.Names())
		}
		for _, name := range h.Names() {
			if got, want := series1(added, name), series1(h, name); !slices.Equal(got, want) {
				t.Fatalf("%s is %v, want %v", name, got, want)
			}
		}
	})
}

// TestThinned: of too many rows those in between go, but neither the last nor those of validations.
func TestThinned(t *testing.T) {
	p := func(v float64) *float64 { return &v }
	h := New(100)
	for i := range 5000 {
		r := telemetry.Record{Step: i, Tokens: int64(i), Loss: p(float64(i)), StepMS: p(1000), Skipped: i == 0,
			Metrics: map[string]float64{"accuracy": float64(i)}}
		if i%1000 == 0 {
			r.ValLoss = p(math.Inf(1))
		}
		if err := h.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.Len(); n < 50 || n > 100 {
		t.Errorf("%d rows", n)
	}
	if last, ok := h.Last(); !ok || last.Step != 4999 {
		t.Errorf("the last step is %d", last.Step)
	}
	if from, to, ok := h.Span(BySeconds); from != 1 || to < 4900 || to > 5000 || !ok {
		t.Errorf("from %v s to %v s", from, to)
	}
	for name, least := range map[string]int{"loss": h.Len(), Metrics + "accuracy": h.Len(), "val_loss": 5} {
		steps, values := h.Figures(name)
		if len(steps) != least {
			t.Errorf("%d values of %s, want %d", len(steps), name, least)
		}
		for i, step := range steps {
			if v := values[i]; v != float64(step) && name != "val_loss" || name == "val_loss" && !math.IsNaN(v) {
				t.Errorf("%s of step %d is %v", name, step, v)
			}
		}
	}
	if got := h.Skipped(); !slices.Equal(got, []int{0}) {
		t.Errorf("skipped: %v", got)
	}
	if all := h.Series("loss", BySteps, 0, 5000, 10); len(all) != 10 || all[9].Last < 4900 || all[9].X != all[9].Last {
		t.Errorf("%+v", all)
	}
	if err := h.Add(telemetry.Record{Step: 200, Loss: p(1.5)}); err != nil { // the run went back
		t.Fatal(err)
	}
	if last, _ := h.Last(); last.Step != 200 || h.Len() > 10 {
		t.Errorf("%d rows, the last of step %d", h.Len(), last.Step)
	}
}
