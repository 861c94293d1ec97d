package cluster

import (
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/wire"
)

// TestLogOrder: records of several processes are merged by time, and those of one stay in order, also where
// its clock was set back.
func TestLogOrder(t *testing.T) {
	l := newLogRing()
	for _, r := range []*wire.LogRecord{
		{Process: "coordinator", TimeNs: 100, Text: "1"}, {Process: "coordinator", TimeNs: 200, Text: "3"}, {Process: "w", TimeNs: 150, Text: "2"},
		{Process: "coordinator", TimeNs: 20, Text: "4, an hour back"}, {Process: "coordinator", TimeNs: 30, Text: "5"},
	} {
		l.add([]*wire.LogRecord{r}, 0)
	}
	records, _, _ := l.follow(false)
	var texts []string
	for _, r := range records {
		texts = append(texts, r.GetText())
	}
	if want := []string{"1", "2", "3", "4, an hour back", "5"}; !slices.Equal(texts, want) {
		t.Errorf("got %q, want %q", texts, want)
	}
}
