package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestErrorsPage makes every error that docs/errors.md lists, and compares the texts. In a script `onpage` says
// that the page has an error that the command before has printed.
func TestErrorsPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	made := make(map[string]bool) // by the page's heading
	headings := make(map[string]*regexp.Regexp)
	for line := range strings.Lines(string(text)) {
		heading, ok := strings.CutPrefix(strings.TrimSpace(line), "### ")
		if !ok {
			continue
		}
		pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.Trim(heading, "`")), "…", ".*")
		headings[heading] = regexp.MustCompile(pattern)
	}
	var mu sync.Mutex
	t.Run("made", func(t *testing.T) {
		p := scripts("testdata/errors")
		p.Cmds["onpage"] = func(ts *testscript.TestScript, _ bool, _ []string) {
			mu.Lock()
			defer mu.Unlock()
			printed, found := ts.ReadFile("stdout")+ts.ReadFile("stderr"), false
			for heading, pattern := range headings {
				if pattern.MatchString(printed) {
					made[heading], found = true, true
				}
			}
			if !found {
				ts.Fatalf("docs/errors.md has no heading for this error:\n%s", printed)
			}
		}
		testscript.Run(t, p)
	})
	for heading := range headings {
		if !made[heading] && !t.Failed() {
			t.Errorf("docs/errors.md: no script of testdata/errors makes this error: %s", heading)
		}
	}
}
