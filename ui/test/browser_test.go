//go:build linux

// Package uitest looks at the page in a real browser: Debian's headless Chromium, driven over its
// debugging protocol. The runs are real ones of the built engine, but for the largest table and the
// longest run, which are made: the simulator's times, and a million lines.
package uitest

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// axeVersion is of axe-core, which npm fetches.
const axeVersion = "4.14.1"

const (
	phone   = 390
	desktop = 1280
	// patience is how long the page may take to show what is waited for, on a busy machine.
	patience = 2 * time.Minute
)

// chromium is the browser; "": there is none.
func chromium() string {
	if path := os.Getenv("TROUPE_CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// engine is the program to test: TROUPE_ENGINE, or a new one.
var engine = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("TROUPE_ENGINE"); path != "" {
		return filepath.Abs(path)
	}
	path := filepath.Join(made, "engine")
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "nocuda", "-o", path, "./cmd/engine")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// axe is the source of the checker of accessibility.
var axe = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("npm", "pack", "--silent", "axe-core@"+axeVersion)
	cmd.Dir = made
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("npm pack axe-core@%s: %w", axeVersion, err)
	}
	f, err := os.Open(filepath.Join(made, strings.TrimSpace(string(out))))
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return "", err
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if err != nil {
			return "", fmt.Errorf("axe.min.js in the package: %w", err)
		}
		if h.Name == "package/axe.min.js" {
			text, err := io.ReadAll(t)
			return string(text), err
		}
	}
})

// made is a folder for what is built and fetched, pictures where pictures go.
var made, pictures string

func TestMain(m *testing.M) {
	var err error
	if made, err = os.MkdirTemp("", "troupe-ui"); err != nil {
		panic(err)
	}
	if pictures = os.Getenv("TROUPE_UI_PICTURES"); pictures == "" {
		pictures = filepath.Join(made, "pictures")
	}
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		panic(err)
	}
	status := m.Run()
	_ = os.RemoveAll(made)
	os.Exit(status)
}

// tab is a page in a browser of its own, with what went wrong in it.
type tab struct {
	t      *testing.T
	ctx    context.Context
	origin string
	token  string // of the link

	mu     sync.Mutex
	faults []string
	asked  int // requests that were made
}

// open opens a link in a fresh browser.
func open(t *testing.T, link string) *tab {
	t.Helper()
	path := chromium()
	if path == "" {
		t.Skip("SKIPPED: there is no Chromium: apt-get install chromium, or set TROUPE_CHROMIUM")
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("force-color-profile", "srgb"), chromedp.WindowSize(desktop, 900))...)
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	p := &tab{t: t, origin: u.Scheme + "://" + u.Host, token: strings.TrimPrefix(u.Fragment, "token=")}
	ctx, end := chromedp.NewContext(alloc, chromedp.WithListener(p.hear))
	p.ctx = ctx
	t.Cleanup(func() { end(); stop() })
	// The first call starts the browser, which lives as long as its context.
	_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	if err == nil {
		_, err = chromedp.Call(ctx, log.Enable, cdp.Empty{})
	}
	if err == nil {
		_, err = chromedp.Call(ctx, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{
			Source: `addEventListener('securitypolicyviolation', (e) => console.error('CSP: ' + e.violatedDirective + ' ' + e.blockedURI));`})
	}
	if err != nil {
		t.Fatal(err)
	}
	p.run(chromedp.Navigate(link))
	return p
}

// hear notes requests that leave the page's own server, exceptions, and what the policy has refused.
func (p *tab) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fault := func(format string, args ...any) { p.faults = append(p.faults, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.asked++
		if to := e.Request.URL; !strings.HasPrefix(to, p.origin+"/") && !strings.HasPrefix(to, "data:") && to != "about:blank" {
			fault("a request to %s", to)
		}
		if p.token != "" && strings.Contains(e.Request.URL+fmt.Sprint(e.Request.Headers["Referer"]), p.token) {
			fault("the token left in %s", e.Request.URL)
		}
	case *runtime.EventExceptionThrown:
		why := e.ExceptionDetails.Text
		if o := e.ExceptionDetails.Exception; o != nil {
			why += " " + o.Description
		}
		fault("an exception: %s", why)
	case *runtime.EventConsoleAPICalled:
		for _, a := range e.Args {
			if strings.Contains(string(a.Value), "CSP") {
				fault("the policy was violated: %s", a.Value)
			}
		}
	case *log.EventEntryAdded:
		if strings.Contains(e.Entry.Text, "Content Security Policy") || strings.Contains(e.Entry.Text, "404") {
			fault("%s: %s", e.Entry.Source, e.Entry.Text)
		}
	}
}

// check fails the test with what has gone wrong so far.
func (p *tab) check() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		p.t.Error(f)
	}
	if p.asked == 0 {
		p.t.Error("no request was seen")
	}
	p.faults = nil
}

func (p *tab) fail(err error) {
	p.t.Helper()
	text, _ := chromedp.Run(p.ctx,
		chromedp.Evaluate[string](`document.body ? location.hash + ' ' + document.body.innerText.slice(0, 1500) : ''`))
	p.t.Fatalf("%v; the page says:\n%s", err, text)
}

func (p *tab) run(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.fail(err)
	}
}

// eval evaluates an expression in the page, and waits for it where it is a promise.
func eval[T any](p *tab, script string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		p.fail(fmt.Errorf("%w: %.200s", err, script))
	}
	return v
}

// wait waits until an expression is true.
func (p *tab) wait(expression string) {
	p.t.Helper()
	for until := time.Now().Add(patience); !eval[bool](p, "!!("+expression+")"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(until) {
			p.fail(fmt.Errorf("waited for %s", expression))
		}
	}
}

// says waits until the page has a text.
func (p *tab) says(text string) {
	p.t.Helper()
	quoted, _ := json.Marshal(text)
	p.wait(fmt.Sprintf(`document.body.textContent.includes(%s)`, quoted))
}

// drawn waits until a canvas is drawn: it has more than some few colours.
func (p *tab) drawn() {
	p.t.Helper()
	p.wait(`(() => { for (const c of document.querySelectorAll('canvas')) { if (c.clientWidth < 50) continue; const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set(); for (let i = 0; i < d.length; i += 4 * 37) { seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); if (seen.size > 4) return true; } } return false; })()`)
}

// theme and width change how the page looks.
func (p *tab) theme(name string) {
	p.t.Helper()
	if !eval[bool](p, `document.getElementById('theme') !== null`) { // a page without that button does as the system
		if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}); err != nil {
			p.fail(err)
		}
		return
	}
	got := eval[string](p,
		fmt.Sprintf(`(() => { for (let i = 0; i < 3 && !document.getElementById('theme').textContent.endsWith(%[1]q); i++) document.getElementById('theme').click(); return document.documentElement.dataset.theme; })()`, name))
	if got != name {
		p.t.Errorf("the theme is %q, not %q", got, name)
	}
}

func (p *tab) width(width int) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: int64(width), Height: 900, DeviceScaleFactor: 1, Mobile: width == phone}); err != nil {
		p.fail(err)
	}
	time.Sleep(300 * time.Millisecond)
}

// look goes through both themes and widths: it takes a picture of each, checks that nothing is wider
// than the screen, and has axe look at it.
func (p *tab) look(name string) {
	p.t.Helper()
	for _, width := range []int{desktop, phone} {
		p.width(width)
		for _, theme := range []string{"light", "dark"} {
			p.theme(theme)
			time.Sleep(250 * time.Millisecond)
			p.picture(fmt.Sprintf("%s-%d-%s", name, width, theme))
			if wide := eval[int](p, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
				p.t.Errorf("%s at %d pixels is %d wider than the screen", name, width, wide)
			}
			p.accessible(fmt.Sprintf("%s at %d pixels, %s", name, width, theme))
		}
	}
	p.check()
}

// picture takes one of the whole page.
func (p *tab) picture(name string) {
	p.t.Helper()
	whole := true
	size := eval[[]float64](p, `scrollTo(0, 0), [document.documentElement.clientWidth, Math.min(4000, document.documentElement.scrollHeight)]`)
	r, err := chromedp.Call(p.ctx, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{Format: cdppage.CaptureScreenshotFormatPng,
		CaptureBeyondViewport: &whole,
		Clip:                  &cdppage.Viewport{Width: size[0], Height: size[1], Scale: 1}})
	if err != nil {
		p.fail(err)
	}
	if err := os.WriteFile(filepath.Join(pictures, name+".png"), r.Data, 0o644); err != nil {
		p.t.Fatal(err)
	}
	if len(r.Data) < 2000 {
		p.t.Errorf("the picture %s has %d bytes", name, len(r.Data))
	}
}

// accessible has axe look at the page as it is.
func (p *tab) accessible(what string) {
	p.t.Helper()
	source, err := axe()
	if err != nil {
		p.t.Fatal(err)
	}
	if !eval[bool](p, `typeof axe !== 'undefined'`) {
		eval[bool](p, source+"\n;true")
	}
	type node struct {
		HTML    string `json:"html"`
		Summary string `json:"summary"`
	}
	result := eval[struct {
		Violations []struct {
			ID    string `json:"id"`
			Help  string `json:"help"`
			Nodes []node `json:"nodes"`
		} `json:"violations"`
		Passes int `json:"passes"`
	}](p, `axe.run(document).then((r) => ({violations: r.violations.map((v) => ({id: v.id, help: v.help, nodes: v.nodes.slice(0, 5).map((n) => ({html: n.html, summary: n.failureSummary}))})), passes: r.passes.length}))`)
	for _, v := range result.Violations {
		for _, n := range v.Nodes {
			p.t.Errorf("%s: %s (%s): %.300s: %.400s", what, v.Help, v.ID, n.HTML, n.Summary)
		}
	}
	if result.Passes < 5 {
		p.t.Errorf("%s: axe found only %d rules to check", what, result.Passes)
	}
}

// key presses keys, by their names.
func (p *tab) key(keys ...string) {
	p.t.Helper()
	for _, k := range keys {
		p.run(chromedp.KeyEvent(k))
	}
}

// goTo opens a view of the run that is shown.
func (p *tab) goTo(view string) {
	p.t.Helper()
	eval[string](p,
		fmt.Sprintf(`(() => { const a = [...document.querySelectorAll('#tabs a')].find((a) => a.textContent === %q); a.click(); return location.hash; })()`, view))
	p.wait(fmt.Sprintf(`document.querySelector('#tabs a[aria-current]')?.textContent === %q`, view))
}

var errNoLink = errors.New("no link was printed")
