package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/telemetry/event"

	tea "charm.land/bubbletea/v2"

	xterm "golang.org/x/term"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/show/term"
	"github.com/troupe-ml/troupe/internal/show/view"
)

// How often a view reads the state of the actors: of a run in this program, and of a coordinator's run.
const (
	lookEvery       = 100 * time.Millisecond
	lookRemoteEvery = time.Second
)

// recording is a run that can record the times of its actions.
type recording interface {
	Record(time.Duration)
	Actions() troupe.Actions
}

// viewReporter draws a run in the last rows of a terminal. Lines of text scroll above them, as without a
// view.
type viewReporter struct {
	*textReporter
	run     training
	program *tea.Program
	err     divertible
	stop    context.CancelFunc
	running sync.WaitGroup
}

// divertible is an error stream whose lines a view can show.
type divertible interface{ divert(to func(line string)) }

// newView makes a view, or says why it can't.
func (a *app) newView(r training, logEvery int, leaves bool) (reporter, string) {
	size, why := a.viewSize()
	if why != "" {
		return nil, why
	}
	v := &viewReporter{run: r, stop: func() {}}
	m := &viewModel{view: view.New(viewOptions()), width: size[0], height: size[1], run: r, leaves: leaves}
	options := []tea.ProgramOption{tea.WithOutput(os.Stdout), tea.WithoutSignalHandler(), tea.WithFPS(20), tea.WithInput(nil)}
	if m.keys = xterm.IsTerminal(int(os.Stdin.Fd())); m.keys {
		options = append(options, tea.WithInput(os.Stdin))
	}
	v.program = tea.NewProgram(m, options...)
	above := lineWriter(v.above)
	v.textReporter = &textReporter{app: a, screen: term.NewScreen(&above, &above, nil), logEvery: logEvery}
	if !term.IsTerminal(os.Stderr) { // standard error is a file: its lines go there
		v.screen = term.NewScreen(&above, a.err, nil)
	} else if d, ok := a.err.(divertible); ok {
		v.err = d
	}
	return v, ""
}

// viewOptions reads the terminal's abilities from the environment.
func viewOptions() view.Options {
	locale := os.Getenv("LANG")
	for _, name := range []string{"LC_CTYPE", "LC_ALL"} {
		if v := os.Getenv(name); v != "" {
			locale = v
		}
	}
	locale = strings.ToLower(strings.ReplaceAll(locale, "-", ""))
	return view.Options{Unicode: strings.Contains(locale, "utf8"), Colour: os.Getenv("NO_COLOR") == ""}
}

// viewSize returns the terminal's size, or the reason why it can't show a view.
func (a *app) viewSize() (size [2]int, why string) {
	switch {
	case !canView:
		return size, "a view needs a Unix system"
	case !a.terminal:
		return size, "the output is not a terminal"
	case a.width == nil || os.Getenv("TERM") == "":
		return size, fmt.Sprintf("the terminal can't redraw lines (TERM=%s)", os.Getenv("TERM"))
	case !inForeground(os.Stdout):
		return size, "the program runs in the background (under timeout, add --foreground)"
	}
	columns, rows, err := xterm.GetSize(int(os.Stdout.Fd()))
	if err != nil || columns < view.LeastColumns || rows < view.LeastRows {
		return size, fmt.Sprintf("the terminal has %d columns and %d rows; a view needs %d and %d", columns, rows, view.LeastColumns,
			view.LeastRows)
	}
	return [2]int{columns, rows}, ""
}

func lineWriter(to func(line string)) linesTo { return linesTo{to: to} }

// linesTo passes whole lines to a function.
type linesTo struct {
	to   func(line string)
	held []byte
}

func (l *linesTo) Write(p []byte) (int, error) {
	l.held = append(l.held, p...)
	for {
		line, rest, whole := bytes.Cut(l.held, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.to(string(line))
		l.held = append([]byte(nil), rest...)
	}
}

// above shows a line above the view.
func (v *viewReporter) above(line string) { v.program.Send(aboveMsg(line)) }

// aboveMsg is a line to show above the view.
type aboveMsg string

func (v *viewReporter) begin(i troupe.Info) {
	if v.err != nil {
		v.err.divert(v.above)
	}
	ctx, stop := context.WithCancel(context.Background())
	v.stop = stop
	v.running.Add(3)
	go func() { // ends with close, or with the terminal
		defer v.running.Done()
		_, _ = v.program.Run() // without a terminal there is no place to report an error
	}()
	go func() { // ends with ctx
		defer v.running.Done()
		v.look(ctx)
	}()
	go func() { // ends with ctx
		defer v.running.Done()
		mindSuspension(ctx, v.program)
	}()
	v.program.Send(i)
	v.textReporter.begin(i)
}

// look reads the state of the actors at intervals.
func (v *viewReporter) look(ctx context.Context) {
	every := lookEvery
	if _, remote := v.run.(detachable); remote {
		every = lookRemoteEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		var m lookMsg
		if r, ok := v.run.(recording); ok {
			r.Record(10 * every)
			m.actions = r.Actions()
		}
		m.status = v.run.Status()
		v.program.Send(m)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// lookMsg is the state of the actors.
type lookMsg struct {
	status  event.Status
	actions troupe.Actions
}

// happened wraps an event of the run.
type happened struct{ event troupe.Event }

func (v *viewReporter) event(e troupe.Event) {
	v.textReporter.event(e)
	v.program.Send(happened{e})
}

func (v *viewReporter) notice(text string) { v.textReporter.notice(text) }

func (v *viewReporter) close() {
	v.stop()
	v.program.Send(endMsg{})
	v.running.Wait()
	if v.err != nil {
		v.err.divert(nil)
	}
	v.screen = term.NewScreen(v.app.out, v.app.err, nil)
}

// endMsg removes the view; hideMsg hides it for a while.
type (
	endMsg  struct{}
	hideMsg bool
)

// hideTime is how long it may take until a hidden frame has disappeared.
const hideTime = 100 * time.Millisecond

// viewModel is what bubbletea draws.
type viewModel struct {
	view          *view.View
	width, height int
	run           training
	keys          bool // standard input is a terminal
	leaves        bool // Ctrl-C only stops following the run
	help          bool
	question      string // the question on the screen
	stopping      bool
	over          bool
	above         []string // lines to show after the current write
	printing      bool
	hidden        bool // the program is about to be suspended, or is
}

func (m *viewModel) Init() tea.Cmd { return nil }

func (m *viewModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case troupe.Info:
		m.view.Begin(msg)
	case happened:
		m.view.Event(msg.event, time.Now())
	case lookMsg:
		m.view.Observe(msg.status, msg.actions)
	case aboveMsg:
		return m, m.print(string(msg))
	case printedMsg:
		m.printing = false
		return m, m.print()
	case tea.WindowSizeMsg:
		narrower := msg.Width < m.width
		if m.width, m.height = msg.Width, msg.Height; narrower {
			return m, tea.ClearScreen // the terminal has wrapped the lines of the last frame
		}
	case hideMsg:
		m.hidden = bool(msg)
	case endMsg:
		m.over = true
		return m, m.print()
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

// print shows lines above the view, one batch after the other, since bubbletea runs commands concurrently.
// After endMsg it quits once the last batch is shown.
func (m *viewModel) print(text ...string) tea.Cmd {
	for _, t := range text {
		for line := range strings.SplitSeq(t, "\n") {
			m.above = append(m.above, wrapLine(line, m.width))
		}
	}
	switch {
	case m.printing:
		return nil
	case len(m.above) > 0:
		lines := strings.Join(m.above, "\n")
		m.above, m.printing = nil, true
		return tea.Sequence(tea.Println(lines), func() tea.Msg { return printedMsg{} })
	case m.over:
		return tea.Quit
	}
	return nil
}

// printedMsg means that a batch of lines has been printed.
type printedMsg struct{}

// wrapLine breaks a line at a width, at a space if there is one, so that its number of rows is known.
func wrapLine(line string, width int) string {
	runes, parts := []rune(line), []string(nil)
	for width = max(width, 1); len(runes) > width; {
		n := width // or at the last space, if that is near
		for i := width; i > width/2; i-- {
			if runes[i] == ' ' {
				n = i
				break
			}
		}
		parts, runes = append(parts, string(runes[:n])), runes[n:]
		if n < width && runes[0] == ' ' {
			runes = runes[1:]
		}
	}
	return strings.Join(append(parts, string(runes)), "\n")
}

// key handles a key. Commands that may block run in the background.
func (m *viewModel) key(key string) tea.Cmd {
	if m.question != "" && key != "ctrl+c" {
		m.question = ""
		if key != "y" {
			return nil
		}
		m.stopping = true
		return signalSelf(os.Interrupt)
	}
	switch key {
	case "ctrl+c":
		m.question, m.stopping = "", true
		return signalSelf(os.Interrupt)
	case "ctrl+\\", "s":
		return m.showStatus
	case "ctrl+z":
		return suspendGroup
	case "q":
		m.question = "stop after this step, with a checkpoint? y: yes, any other key: no"
		switch {
		case m.leaves:
			m.question = "stop following? The run continues. y: yes, any other key: no"
		case m.stopping:
			m.question = "stop at once? The steps since the last checkpoint are lost. y: yes, any other key: no"
		}
	case "p":
		kind := event.ChangePause
		if m.view.Paused() {
			kind = event.ChangeResume
		}
		return m.change(kind)
	case "c":
		return m.change(event.ChangeCheckpoint)
	case "?":
		m.help = !m.help
	case "down", "j":
		m.view.Scroll(1)
	case "up", "k":
		m.view.Scroll(-1)
	case "pgdown", "space":
		m.view.Scroll(8)
	case "pgup":
		m.view.Scroll(-8)
	case "home":
		m.view.Scroll(-1 << 20)
	case "end":
		m.view.Scroll(1 << 20)
	}
	return nil
}

// changeable is a run that accepts requests.
type changeable interface{ Change(troupe.Change) error }

func (m *viewModel) change(kind event.ChangeKind) tea.Cmd {
	return func() tea.Msg {
		r, ok := m.run.(changeable)
		if !ok {
			return aboveMsg("engine: this run can't be changed from here; use engine pause, resume or checkpoint")
		}
		if err := r.Change(troupe.Change{Kind: kind}); err != nil {
			return aboveMsg("engine: " + words.OneLine(err.Error()))
		}
		return nil
	}
}

func (m *viewModel) showStatus() tea.Msg {
	return aboveMsg(strings.TrimRight(words.Harmless(m.run.Status().String()), "\n"))
}

// View draws the frame. It leaves some rows of the terminal to the lines above.
func (m *viewModel) View() tea.View {
	if m.over || m.hidden || m.width < view.LeastColumns || m.height < view.LeastRows {
		return tea.NewView("")
	}
	rows := m.height - max(3, m.height/6)
	var last []string
	switch {
	case m.question != "":
		last = []string{m.question}
	case m.help:
		last = []string{"q stop  p pause, resume  c checkpoint  s status", "up, down, PgUp, PgDn scroll the stages  ? hide this",
			"F forward B backward I input gradient W weight gradient U update",
			"curve: the loss by step; o is a validation"}
	case m.keys:
		last = []string{"q stop  p pause  c checkpoint  s status  ? keys"}
	}
	for i := range last {
		last[i] = wrapLine(last[i], m.width)
	}
	bottom := strings.Join(last, "\n")
	n := 0
	if bottom != "" {
		n = 1 + strings.Count(bottom, "\n")
	}
	lines := m.view.Draw(m.width-1, rows-n)
	if bottom != "" {
		lines = append(lines, bottom)
	}
	return tea.NewView(strings.Join(lines, "\n"))
}

// diverted is the error stream. While a view is drawn, its lines go to the view.
type diverted struct {
	mu sync.Mutex
	w  io.Writer
	to *linesTo
}

func (d *diverted) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.to != nil {
		return d.to.Write(p)
	}
	return d.w.Write(p)
}

func (d *diverted) divert(to func(line string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.to = nil; to != nil {
		d.to = &linesTo{to: to}
	}
}
