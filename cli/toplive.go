package cli

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/show/view"
)

// topLive shows a cluster until the user quits. It uses the terminal's alternate screen and restores the
// old content at the end.
func (a *app) topLive(ctx context.Context, c *cluster.Client, run string) error {
	m := &topModel{detail: run, only: run != "", views: make(map[string]*view.View), speeds: make(map[string]float64)}
	p := tea.NewProgram(m, tea.WithOutput(os.Stdout), tea.WithInput(os.Stdin), tea.WithFPS(20))
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Add(2)
	go func() { // ends with ctx
		defer running.Done()
		watchCluster(ctx, c, p)
	}()
	go func() { // ends with ctx
		defer running.Done()
		mindSuspension(ctx, p)
	}()
	_, err := p.Run()
	cancel()
	running.Wait()
	if m.state.err != nil && err == nil {
		return m.state.err
	}
	return err
}

// watchCluster sends the state of the cluster to p every second and follows the runs in progress.
func watchCluster(ctx context.Context, c *cluster.Client, p *tea.Program) {
	var following sync.WaitGroup
	defer following.Wait()
	followed := make(map[string]bool)
	tick := time.NewTicker(topEvery)
	defer tick.Stop()
	for {
		s := lookAt(ctx, c, "")
		if ctx.Err() != nil {
			return
		}
		p.Send(s)
		for _, r := range s.runs {
			if r.Over() || followed[r.ID] || len(followed) >= topFollows {
				continue
			}
			followed[r.ID] = true
			following.Add(1)
			go func() { // ends with ctx or the run
				defer following.Done()
				followInto(ctx, c, r.ID, p)
			}()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// topEvent is an event of a run.
type topEvent struct {
	run   string
	event troupe.Event
}

// followInto sends a run's events to p.
func followInto(ctx context.Context, c *cluster.Client, id string, p *tea.Program) {
	f, err := c.Follow(ctx, id, cluster.FollowOptions{})
	if err != nil {
		return // the table shows the run's state
	}
	begun := make(chan struct{})
	go func() { // ends with the following
		defer close(begun)
		if info := f.Info(); ctx.Err() == nil {
			p.Send(topEvent{id, info})
		}
	}()
	for e := range f.Events() {
		p.Send(topEvent{id, e})
	}
	_, _ = f.Wait()
	<-begun
}

// topModel is what bubbletea draws.
type topModel struct {
	width, height int
	state         topState
	views         map[string]*view.View
	speeds        map[string]float64
	selected      int
	detail        string // the run that is shown alone; "": none
	only          bool   // the command line names the run: esc quits
}

func (m *topModel) Init() tea.Cmd { return nil }

func (m *topModel) viewOf(run string) *view.View {
	v := m.views[run]
	if v == nil {
		v = view.New(viewOptions())
		m.views[run] = v
	}
	return v
}

func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case topState:
		if m.state = msg; msg.err != nil && len(msg.runs) == 0 && len(m.views) == 0 {
			return m, tea.Quit
		}
		for i := range msg.runs {
			r := &m.state.runs[i]
			if speed, ok := m.speeds[r.ID]; ok {
				r.speed = speed
			}
			if !r.Over() {
				m.viewOf(r.ID).Observe(r.status, troupe.Actions{})
			}
		}
	case topEvent:
		if info, ok := msg.event.(troupe.Info); ok {
			m.viewOf(msg.run).Begin(info)
			break
		}
		if s, ok := msg.event.(troupe.StepEvent); ok && s.TokensPerS != nil {
			m.speeds[msg.run] = *s.TokensPerS
		}
		m.viewOf(msg.run).Event(msg.event, time.Now())
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

func (m *topModel) key(key string) tea.Cmd {
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "ctrl+z":
		return suspendGroup
	case "esc", "left", "backspace":
		if m.only {
			return tea.Quit
		}
		m.detail = ""
	case "enter", "right":
		if m.detail == "" && m.selected < len(m.state.runs) {
			m.detail = m.state.runs[m.selected].ID
		}
	}
	by := map[string]int{"down": 1, "j": 1, "up": -1, "k": -1, "pgdown": 8, "pgup": -8}[key]
	if m.detail != "" {
		m.viewOf(m.detail).Scroll(by)
	} else {
		m.selected = max(0, min(len(m.state.runs)-1, m.selected+by))
	}
	return nil
}

func (m *topModel) View() tea.View {
	v := tea.NewView(strings.Join(m.frame(), "\n"))
	v.AltScreen = true
	return v
}

// frame draws the screen.
func (m *topModel) frame() []string {
	if m.width < 1 || m.height < 2 {
		return nil
	}
	var all []string
	last := "up, down: select   enter: show the run's stages   q: quit, the runs continue"
	if m.state.err != nil {
		last = "no answer from the coordinator: " + words.OneLine(m.state.err.Error())
	}
	if m.detail != "" {
		title := m.detail
		for _, r := range m.state.runs {
			if r.ID == m.detail {
				title = runName(r.RunSummary) + ": " + r.State
			}
		}
		all = append(lines(title, m.width), m.viewOf(m.detail).Draw(m.width, max(1, m.height-2))...)
		if m.state.err == nil {
			last = "esc: all runs   up, down: scroll   q: quit, the runs continue"
		}
	} else {
		selected := ""
		if m.selected < len(m.state.runs) {
			selected = m.state.runs[m.selected].ID
		}
		var b strings.Builder
		_ = m.state.table(&b, selected) // a strings.Builder does not fail
		all = lines(b.String(), m.width)
	}
	all = all[:min(len(all), m.height-1)]
	for len(all) < m.height-1 {
		all = append(all, "")
	}
	return append(all, lines(last, m.width)...)
}
