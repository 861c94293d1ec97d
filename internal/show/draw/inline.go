package draw

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the style of pictures and the last script
	"encoding/base64"
	"fmt"
	"html/template"
	"regexp"
	"strings"

	"github.com/troupe-ml/troupe/scheduler"
)

//go:embed picture.css
var pictureStyle string

// A page with drawings of Inline must include InlineStyle, and InlineScript once after the drawings. InlinePolicy is
// its content security policy, which allows no other scripts and no loading of resources.
var (
	InlineStyle  = file("pipeline.css") + pictureStyle
	InlinePolicy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" + scriptHash + "'; base-uri 'none'; form-action 'none'"
	InlineScript = template.HTML(`<div id="said" class="hidden" role="status" aria-live="polite"></div>
<script type="module">` + script + `</script>`)
)

var (
	script     = bundle("dom.js", "step.js", "pipeline.js", "static.js")
	scriptHash = func() string { sum := sha256.Sum256([]byte(script)); return base64.StdEncoding.EncodeToString(sum[:]) }()
)

func file(name string) string {
	text, err := BrowserFiles.ReadFile("page/" + name)
	if err != nil {
		panic(err) // the file is embedded
	}
	return string(text)
}

var (
	importLine = regexp.MustCompile(`(?m)^import .*\n`)
	exportWord = regexp.MustCompile(`(?m)^export `)
)

// bundle joins modules into one, each after the modules that it imports, because a page in a local file cannot import
// modules. All their top-level names must differ.
func bundle(names ...string) string {
	var all strings.Builder
	for _, name := range names {
		all.WriteString(exportWord.ReplaceAllString(importLine.ReplaceAllString(file(name), ""), ""))
	}
	return all.String()
}

// Inline returns HTML with interactive drawings of charts: one for each chart, or one for a plan and the measured
// step after it. Browsers without scripts show the picture of SVG, if it does not have too many boxes. So do all
// browsers for a chart that the script can't draw, because it is not a step of a table. A page may contain only one
// result of Inline.
//
// It returns the errors of SVG.
func Inline(charts ...Chart) (template.HTML, error) {
	p, err := newPicture("html", charts)
	if err != nil {
		return "", err
	}
	return p.inline()
}

func (p *picture) inline() (template.HTML, error) {
	var out bytes.Buffer
	about, before, behind := "", "<noscript>\n", "</noscript>\n"
	for i := range p.charts {
		c := &p.charts[i]
		about += fmt.Sprintf("<p class=\"about\"><b>%s</b> %s</p>\n", escape(c.Title), escape(strings.Join(c.headline(p.figures[i]), " · ")))
		if p.planOfNext(i) {
			continue
		}
		if d, err := c.forBrowser(); err != nil {
			fmt.Fprintf(&out, "%s<p class=\"about\">The interactive drawing is not available: %s.</p>\n", about, escape(err.Error()))
			before, behind = "", ""
		} else {
			fmt.Fprintf(&out, "<div class=\"pipeline\" data-step=\"%s\">\n%s</div>\n", base64.StdEncoding.EncodeToString(d.Bytes), about)
		}
		about = ""
	}
	out.WriteString(before)
	if p.actions > maxFallback && before != "" {
		fmt.Fprintf(&out,
			"<p>This drawing of %d actions needs JavaScript, which this browser does not run. Use the format svg for a picture.</p>\n", p.actions)
	} else {
		w := buffered(&out)
		p.write(w)
		if err := w.Flush(); err != nil {
			return "", err
		}
	}
	out.WriteString(behind)
	return template.HTML(out.String()), nil
}

// planOfNext reports whether a chart is the plan of the measured step after it, which is drawn with its plan.
func (p *picture) planOfNext(i int) bool {
	c := p.charts[i:]
	return c[0].Step == nil && len(c) > 1 && c[1].Step != nil && c[1].Table == c[0].Table
}

func (c *Chart) forBrowser() (*Drawing, error) {
	if c.Step != nil {
		return ForBrowser(c.Step)
	}
	tl := &scheduler.Timeline{}
	actions := make([][]scheduler.Action, len(c.Lanes))
	for r := range c.Lanes {
		actions[r] = c.Lanes[r].Actions
	}
	t := c.Table
	if t == nil && c.exchanges() {
		return nil, fmt.Errorf("%w: it has exchanges of tokens, but no table that says which actions they belong to", ErrChart)
	}
	if t == nil {
		t = scheduler.TableOf("", actions)
		t.Skips = c.Skips
	}
	for r := range c.Lanes {
		var row []scheduler.Action
		if r < len(t.Ranks) {
			row = t.Ranks[r]
		}
		start, end, err := c.Lanes[r].times(row)
		if err != nil {
			return nil, err
		}
		tl.Start, tl.End = append(tl.Start, start), append(tl.End, end)
	}
	s := scheduler.StepOf(t, tl)
	s.Credits, s.StepMS = c.Credits, c.Makespan
	return forBrowser(s, c.Unit, false)
}
