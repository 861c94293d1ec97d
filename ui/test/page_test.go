//go:build linux

package uitest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
)

// TestWatched watches a run from its start to its end, and controls it.
func TestWatched(t *testing.T) {
	dir := workplace(t, "watched")
	e := start(t, dir, "run", "config.toml", "--ui", "--set", "run.name=watched", "--set", "run.steps=4000")
	p := open(t, e.link)
	p.says("watched")
	p.wait(`document.querySelector('.pill.running')`)
	p.drawn()
	p.says("Where the bubble comes from")
	p.first()
	hash := eval[string](p, `location.hash + sessionStorage.length`)
	if strings.Contains(hash, "token") {
		t.Errorf("the token stays in the address: %s", hash)
	}
	p.look("running")

	p.goTo("Curves")
	p.says("Learning rate")
	p.drawn()
	p.look("curves")
	p.goTo("Model")
	p.says("Weight norm")
	p.look("model")
	p.goTo("Configuration")
	p.says("optimizer.lr")
	p.says("checkpoints")
	p.look("configuration")

	// Control: a dialog asks, keeps the focus, and Escape closes it.
	p.goTo("Control")
	p.says("Write checkpoint")
	p.look("control")
	press := func(name string) {
		eval[bool](p,
			fmt.Sprintf(`(() => { const b = [...document.querySelectorAll('.actions button')].find((b) => b.textContent.startsWith(%q)); b.focus(); b.click(); return document.querySelector('dialog[open]') !== null; })()`, name))
		p.wait(`document.querySelector('dialog[open]')`)
	}
	press("Pause")
	p.accessible("the dialog")
	p.width(desktop)
	p.picture("dialog-1280-dark")
	for range 4 {
		p.key(kb.Tab)
		inside := eval[bool](p,
			`document.activeElement === document.body || document.querySelector('dialog[open]').contains(document.activeElement)`)
		if !inside {
			t.Error("the focus has left the dialog")
		}
	}
	p.key(kb.Escape)
	p.wait(`!document.querySelector('dialog[open]') && document.activeElement.textContent.startsWith('Pause')`)
	confirm := func() {
		eval[bool](p, `(() => { document.querySelector('dialog[open] button.main').click(); return true; })()`)
	}
	press("Pause")
	confirm()
	p.wait(`document.querySelector('.pill.paused')`)
	p.says("paused after step")
	press("Resume")
	confirm()
	p.wait(`document.querySelector('.pill.running')`)
	press("Change learning rate")
	p.wait(`document.querySelector('dialog [name=lr]').value === '0.003' && document.querySelector('dialog .preview tbody')`)
	p.accessible("the dialog of the learning rate")
	p.picture("dialog-rate")
	p.key("1", "e", "-", "3") // its first field has the focus
	p.wait(`/^0.001|^[\d.]+e−4/.test(document.querySelector('dialog .preview tr:last-child td:nth-child(3), dialog .preview tbody td:nth-child(3)').textContent)`)
	confirm()
	p.says("peak 0.001")
	press("Write checkpoint")
	confirm()
	p.says("checkpoints/step-")

	p.goTo("Overview")
	p.wait(`document.querySelector('.pipeline canvas')?.clientWidth > 50`)
	p.drawn()
	keyboard(p)
	p.goTo("Control")
	p.says("Write checkpoint")
	press("Stop")
	confirm()
	p.wait(`document.querySelector('.pill.stopped')`)
	p.says("The run was stopped")
	if err := <-e.over; err == nil {
		t.Error("the engine ended with 0 after a stop")
	} else {
		e.over <- err
	}
	p.says("The run was stopped") // it stays when the server is gone
	p.check()

	// The same folder, afterwards.
	e = start(t, dir, "ui", "runs")
	p = open(t, e.link)
	p.says("watched")
	p.wait(`location.hash.endsWith('/curves')`)
	p.drawn()
	p.first()
	p.look("finished")
	p.goTo("Control")
	p.says("nothing to control")
	p.look("finished-control")
	p.goTo("Overview")
	p.drawn()
	p.first()
	p.look("finished-overview")
}

// first checks that the loss and the configuration are seen without a click or a scroll on a screen, and without a click on a
// phone.
func (p *tab) first() {
	p.t.Helper()
	p.wait(`document.querySelector('dl.setup dd')`)
	for _, width := range []int{desktop, phone} {
		p.width(width)
		p.drawn()
		seen := eval[bool](p, `(() => { scrollTo(0, 0); const at = (s) => document.querySelector(s).getBoundingClientRect(); const c = at('main .charts canvas'), d = at('dl.setup');
			return c.width > 200 && d.width > 200 && c.bottom < innerHeight && (innerWidth < 700 || d.top < innerHeight); })()`)
		if !seen {
			p.t.Errorf("at %d pixels the loss or the configuration is not on the first page", width)
		}
	}
	p.width(desktop)
}

// keyboard goes through the drawing by keys alone.
func keyboard(p *tab) {
	p.t.Helper()
	eval[bool](p, `(() => { document.querySelector('.pipeline canvas').focus(); return true; })()`)
	p.key(kb.Enter)
	p.wait(`/^Stage 0/.test(document.querySelector('.pipeline .readout').textContent)`)
	p.key(kb.ArrowDown)
	p.wait(`/^Stage 1/.test(document.querySelector('.pipeline .readout').textContent)`)
	before := eval[string](p, `document.querySelector('.pipeline .readout').textContent`)
	p.key(kb.ArrowRight)
	after := eval[string](p, `document.querySelector('.pipeline .readout').textContent`)
	if before == after {
		p.t.Errorf("the right arrow stays at %q", before)
	}
	p.key("+", "+", "0", "?")
	p.wait(`document.querySelector('dialog[open]')?.innerText.includes('Keyboard shortcuts')`)
	p.accessible("the list of keys")
	p.key(kb.Escape)
	p.wait(`!document.querySelector('dialog[open]')`)
}

// TestStall: a worker of two is stopped: the page says who waits for whom, with the root.
func TestStall(t *testing.T) {
	dir := workplace(t, "stall")
	e := start(t, dir, "run", "config.toml", "--ui", "--local-cluster", "2", "--set", "run.name=two-hosts", "--set", "run.steps=100000",
		"--set", "run.stall_after_s=2", "--set", "cluster.silence_s=60", "--set", "cluster.lease_s=300")
	p := open(t, e.link)
	p.drawn()
	p.says("worker-1")
	p.says("The clock of worker-")
	p.look("hosts")
	pid := e.child("worker-1") // which has the last stages: the others wait for them in a row
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	p.wait(`document.querySelector('.pill.stalled')`)
	p.says("The run is stalled")
	chain := eval[int](p, `document.querySelectorAll('.stall li').length`)
	if chain < 2 {
		t.Errorf("the chain of waits has %d lines", chain)
	}
	p.look("stall")
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.wait(`!document.querySelector('.pill.stalled') && document.querySelector('.pill.running')`)
	p.check()
}

// TestLargeTable draws 64 stages × 16 chunks × 256 microbatches.
func TestLargeTable(t *testing.T) {
	dir := t.TempDir()
	table, err := scheduler.Generate(scheduler.Spec{Schedule: scheduler.Interleaved, Ranks: 64, Chunks: 16, Microbatches: 256})
	if err != nil {
		t.Fatal(err)
	}
	m := scheduler.Machine{Costs: scheduler.Jittered(scheduler.Slowed(scheduler.UnitCosts, 20, 1.1), 0.15, 7),
		Link: func(_, _ int) float64 { return 0.05 }}
	tl, err := m.Simulate(table)
	if err != nil {
		t.Fatal(err)
	}
	step := scheduler.StepOf(table, tl)
	step.Number = 7
	actions := 0
	for _, row := range table.Ranks {
		actions += len(row)
	}
	trace := telemetry.TraceOf(step, make([]float64, table.NumChunks), 1)
	text, err := json.Marshal(trace)
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(dir, "large")
	if err := os.Mkdir(run, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(run, "trace.jsonl"), append(text, '\n'))
	e := start(t, dir, "ui", "large")
	p := open(t, e.link)
	begun := time.Now()
	p.drawn()
	t.Logf("%d actions: drawn %.1f s after the page was opened", actions, time.Since(begun).Seconds())
	p.look("large")
	p.width(desktop)
	// Panning and zooming, frame by frame.
	const frames = `(async (zoomed) => { const c = document.querySelector('.pipeline canvas'); c.focus(); const key = (k, s) => c.dispatchEvent(new KeyboardEvent('keydown', {key: k, shiftKey: !!s, bubbles: true}));
		key('0'); for (let i = 0; i < zoomed; i++) key('+'); await new Promise((f) => requestAnimationFrame(f)); const t = performance.now(); const n = 40;
		for (let i = 0; i < n; i++) { if (zoomed) key(i %% 20 < 10 ? 'ArrowRight' : 'ArrowLeft', true); else key(i %% 2 ? '0' : '+'); await new Promise((f) => requestAnimationFrame(f)); await new Promise((f) => setTimeout(f)); }
		return [(performance.now() - t) / n, Number(c.dataset.paintMs)]; })(%d)`
	for _, zoomed := range []int{0, 3, 7} {
		ms := eval[[]float64](p, fmt.Sprintf(frames, zoomed))
		t.Logf("zoomed %d times: %.1f ms a frame, of which the page's own drawing takes %.1f", zoomed, ms[0], ms[1])
	}
	p.picture("large-zoomed-1280")
	p.check()
}

// TestMillionSteps opens the curves of a run of 1,000,000 steps.
func TestMillionSteps(t *testing.T) {
	dir := t.TempDir()
	run := filepath.Join(dir, "long")
	if err := os.Mkdir(run, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(run, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	for i := 1; i <= 1_000_000; i++ {
		x := float64(i)
		noise := math.Sin(x*12.9898) * math.Cos(x*78.233)
		fmt.Fprintf(w,
			`{"step":%d,"loss":%.6f,"grad_norm":%.5f,"lr":%.4e,"tokens":%d,"tokens_per_s":%.1f,"step_ms":%.3f,"bubble_pct":%.2f,"peak_mem_bytes":73400320`, i, 1.8+6/math.Sqrt(1+x/500)+0.08*noise, 0.6+0.3*noise*noise+2/math.Sqrt(x), 3e-4*math.Min(1, x/2000)*(0.55+0.45*math.Cos(math.Pi*x/1e6)), i*16384, 120000+3000*noise, 136+3*noise, 11+noise)
		if i%1000 == 0 {
			fmt.Fprintf(w, `,"val_loss":%.6f`, 1.85+6/math.Sqrt(1+x/480))
		}
		fmt.Fprintln(w, "}")
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(run, "events.jsonl"), []byte(`{"time_ms":1795511059999,"step":0,"kind":"start"}
{"time_ms":1795511059999,"step":300000,"kind":"restart","text":"worker w2 failed"}
{"time_ms":1795511059999,"step":700000,"kind":"rate","text":"learning rate 1e-4"}
`))
	e := start(t, dir, "ui", "long")
	begun := time.Now()
	p := open(t, e.link)
	p.says("1\u202f000\u202f000")
	t.Logf("the run is shown after %.1f s", time.Since(begun).Seconds())
	begun = time.Now()
	p.goTo("Curves")
	p.drawn()
	t.Logf("the curves are drawn %.2f s later", time.Since(begun).Seconds())
	for v, want := range map[string]string{"0": "0", "2500": "2500", "2e5": "200k", "1e6": "1M", "1.25e6": "1250k", "1.5e7": "15M",
		"0.5": "0.5", "10": "10"} {
		if got := eval[string](p, `import('./page/dom.js').then((m) => m.place(`+v+`))`); got != want {
			t.Errorf("an axis says %q of %s, want %q", got, v, want)
		}
	}
	p.look("long")
	// Zoom by keys, and read a value.
	p.width(desktop)
	eval[bool](p, `(() => { document.querySelector('canvas').focus(); return true; })()`)
	p.key(kb.ArrowRight, kb.ArrowRight, "+", "+", "+", "+", "+", "+")
	p.wait(`/^Step \d+: training [\d.]+/.test(document.querySelector('.readout').textContent)`)
	time.Sleep(time.Second)
	p.picture("long-zoomed-1280")
	p.check()
}

// TestMarkup: what a run is called and what it wrote is text, whatever stands in it.
func TestMarkup(t *testing.T) {
	dir := t.TempDir()
	const evil = `<img src=x onerror=document.body.dataset.evil=1><script>document.body.dataset.evil=1<`
	run := filepath.Join(dir, strings.ReplaceAll(evil, "/", ""))
	if err := os.Mkdir(run, 0o755); err != nil {
		t.Fatal(err)
	}
	quoted, _ := json.Marshal(evil + "/script>")
	write(t, filepath.Join(run, "metrics.jsonl"), []byte("{\"step\":1,\"loss\":2,\"metrics\":{"+string(quoted)+":1}}\n"))
	write(t, filepath.Join(run, "events.jsonl"), []byte(fmt.Sprintf("{\"time_ms\":1,\"step\":1,\"kind\":%s,\"text\":%s}\n", quoted, quoted)))
	write(t, filepath.Join(run, "samples.jsonl"), []byte(fmt.Sprintf("{\"step\":1,\"prompt\":%s,\"text\":%s}\n", quoted, quoted)))
	write(t, filepath.Join(run, "stats.jsonl"), []byte(fmt.Sprintf("{\"step\":1,\"layers\":[{\"name\":%s,\"stage\":0,\"params\":3}]}\n",
		quoted)))
	p := open(t, start(t, dir, "ui", ".").link)
	p.says("<img src=x")
	p.look("markup-now")
	for _, view := range []string{"Overview", "Curves", "Model"} {
		p.goTo(view)
		p.says("<script>")
		found := eval[int](p, `document.querySelectorAll('main img, main script').length + (document.body.dataset.evil ? 100 : 0)`)
		if found != 0 {
			t.Errorf("%s: markup became %d elements", view, found)
		}
	}
	p.look("markup")
}

// TestRuns: several runs in a list and over one another, and an empty folder.
func TestRuns(t *testing.T) {
	dir := workplace(t, "runs")
	path, err := engine()
	if err != nil {
		t.Fatal(err)
	}
	for name, lr := range map[string]string{"fast": "3e-3", "slow": "3e-4", "zero-bubble": "1e-3"} {
		schedule := "1f1b"
		if name == "zero-bubble" {
			schedule = "zb-h1"
		}
		command(t, dir, path, "run", "config.toml", "--quiet", "--set", "run.name="+name, "--set", "optimizer.lr="+lr, "--set",
			"pipeline.schedule="+schedule)
	}
	p := open(t, start(t, dir, "ui", "runs").link)
	p.says("zero-bubble")
	p.says("fast")
	p.look("list")
	p.width(desktop)
	// Sorted by a column, searched, and chosen for a comparison.
	names := `[...document.querySelectorAll('.runs tbody a')].map((a) => a.textContent).join()`
	sortBy := func(column string) {
		eval[bool](p, fmt.Sprintf(`(() => { [...document.querySelectorAll('.sort')].find((b) => b.textContent === %q).click(); return true; })()`,
			column))
	}
	sortBy("Learning rate")
	if got := eval[string](p, names); got != "slow,zero-bubble,fast" {
		t.Errorf("by learning rate: %s", got)
	}
	sortBy("Learning rate")
	if got := eval[string](p, names); got != "fast,zero-bubble,slow" {
		t.Errorf("by learning rate, falling: %s", got)
	}
	p.says("schedule zb-h1")
	eval[bool](p,
		`(() => { const s = document.getElementById('search'); s.value = 'zb-h1'; s.dispatchEvent(new Event('input')); return true; })()`)
	if got := eval[string](p, names); got != "zero-bubble" {
		t.Errorf("searched: %s", got)
	}
	eval[bool](p, `(() => { const s = document.getElementById('search'); s.value = ''; s.dispatchEvent(new Event('input')); return true; })()`)
	eval[bool](p, `(() => { document.querySelectorAll('.runs [type=checkbox]').forEach((b) => b.click()); return true; })()`)
	p.says("Compare 3 runs")
	eval[bool](p, `(() => { document.querySelector('.bar .main').click(); return true; })()`)
	p.says("Configuration differences")
	p.says("optimizer.lr")
	p.says("Best validation loss")
	p.drawn()
	time.Sleep(500 * time.Millisecond)
	p.look("compare")
	p.goTo("Configuration")
	p.says("Configuration differences")
	eval[bool](p, `(() => { document.querySelector('a.back').click(); return true; })()`)
	p.wait(`document.querySelectorAll('.runs tbody tr').length === 3`)
	eval[bool](p, `(() => { [...document.querySelectorAll('a')].find((a) => a.textContent === 'zero-bubble').click(); return true; })()`)
	p.drawn()
	p.goTo("Overview")
	p.says("Where the bubble comes from")
	p.look("zero-bubble")

	empty := t.TempDir()
	p = open(t, start(t, empty, "ui", ".").link)
	p.says("No runs yet")
	p.look("empty")
}

// TestFiles: a plan, a step and a report are pages that draw themselves from a file, and ask for nothing.
func TestFiles(t *testing.T) {
	dir := workplace(t, "files")
	path, err := engine()
	if err != nil {
		t.Fatal(err)
	}
	command(t, dir, path, "run", "config.toml", "--quiet", "--local-cluster", "2", "--set", "run.name=filed", "--set",
		"pipeline.schedule=zb-h1")
	for name, args := range map[string][]string{
		"plan":   {"plan", "--schedule", "interleaved", "--stages", "4", "--chunks", "3", "--microbatches", "8", "--format", "html", "--out"},
		"step":   {"trace", "runs/filed", "--format", "html", "--out"},
		"report": {"report", "runs/filed", "--to"},
	} {
		file := filepath.Join(dir, name+".html")
		command(t, dir, path, append(args, file)...)
		p := open(t, "file://"+file)
		p.drawn()
		p.look("file-" + name)
		if p.asked != 1 {
			t.Errorf("%s: %d requests were made", name, p.asked)
		}
		p.width(desktop)
		const pixels = `document.querySelector('canvas').toDataURL()`
		readout := func(pattern string) {
			p.wait(fmt.Sprintf(`/%s/.test(document.querySelector('.readout').textContent)`, pattern))
		}
		// The time of what the pointer is at.
		eval[bool](p,
			`(() => { const c = document.querySelector('canvas'), r = c.getBoundingClientRect(); for (let x = r.left + 130; x < r.right; x += 5) { c.dispatchEvent(new PointerEvent('pointermove', {clientX: x, clientY: r.top + 52})); if (/forward of microbatch/.test(document.querySelector('.readout').textContent)) break; } return true; })()`)
		readout(`^Stage 0.*: \d+F\d, forward of microbatch \d on chunk \d+, .* from `)
		// Keys zoom, and show the way of a microbatch.
		whole := eval[string](p, pixels)
		eval[bool](p, `(() => { document.querySelector('canvas').focus(); return true; })()`)
		p.key("+")
		p.wait(pixels + ` !== ` + fmt.Sprintf("%q", whole))
		p.key("0", "n", "n")
		readout(`^Microbatch 1: from `)
		p.picture("file-" + name + "-way")
		p.key(kb.Escape)
		p.wait(pixels + ` === ` + fmt.Sprintf("%q", whole))
		p.key(kb.Enter, kb.ArrowDown)
		readout(`^Stage 1`)
		p.check()
	}
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestReadmePictures makes the pictures that README.md shows, where it is told to.
func TestReadmePictures(t *testing.T) {
	to := os.Getenv("TROUPE_README_PICTURES")
	if to == "" {
		t.Skip("TROUPE_README_PICTURES names no folder: make pictures")
	}
	dir := workplace(t, "pictures")
	path, err := engine()
	if err != nil {
		t.Fatal(err)
	}
	const steps = "run.steps=90"
	for _, of := range [][]string{{"zero-bubble", "zb-h1", "3e-3"}, {"one-f-one-b", "1f1b", "1e-3"}} {
		command(t, dir, path, "run", "config.toml", "--quiet", "--set", steps, "--set", "run.trace_every=30", "--set", "run.name="+of[0], "--set",
			"pipeline.schedule="+of[1], "--set", "optimizer.lr="+of[2],
			"--set", "model.hidden=96", "--set", "model.context=128")
	}
	p := open(t, start(t, dir, "ui", "runs").link)
	p.says("zero-bubble")
	eval[bool](p, `(() => { [...document.querySelectorAll('a')].find((a) => a.textContent === 'zero-bubble').click(); return true; })()`)
	p.width(desktop)
	p.theme("light")
	p.goTo("Overview")
	p.drawn()
	p.says("Who waits for whom")
	p.part(to, "ui-now", 985)
	p.goTo("Curves")
	p.drawn()
	eval[bool](p, `(() => { document.querySelectorAll('.chips input:not(:checked)').forEach((b) => b.click()); return true; })()`)
	p.says("Configuration differences")
	time.Sleep(500 * time.Millisecond)
	p.theme("dark")
	p.part(to, "ui-curves", 860)
	p.check()
}

// part takes a picture of the page's upper part, of at most 200 KB.
func (p *tab) part(dir, name string, height float64) {
	p.t.Helper()
	time.Sleep(500 * time.Millisecond)
	eval[bool](p, `(scrollTo(0, 0), true)`)
	whole := true
	r, err := chromedp.Call(p.ctx, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{Format: cdppage.CaptureScreenshotFormatPng,
		CaptureBeyondViewport: &whole,
		Clip:                  &cdppage.Viewport{Width: desktop, Height: height, Scale: 0.75}})
	if err != nil {
		p.fail(err)
	}
	if len(r.Data) > 200_000 {
		p.t.Errorf("%s has %d bytes, more than 200 KB", name, len(r.Data))
	}
	write(p.t, filepath.Join(dir, name+".png"), r.Data)
}
