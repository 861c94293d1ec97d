package logring

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/wire"
)

// TestLogOrder: records of several processes are merged by time. Those of one process stay in order, even if its clock was
// set back.
func TestLogOrder(t *testing.T) {
	l := New()
	for _, r := range []*wire.LogRecord{
		{Process: "coordinator", TimeNs: 100, Text: "1"}, {Process: "coordinator", TimeNs: 200, Text: "3"},
		{Process: "w", TimeNs: 150, Text: "2"},
		{Process: "coordinator", TimeNs: 20, Text: "4, an hour back"}, {Process: "coordinator", TimeNs: 30, Text: "5"},
	} {
		l.Add([]*wire.LogRecord{r}, 0)
	}
	records, _, _ := l.Follow(false)
	var texts []string
	for _, r := range records {
		texts = append(texts, r.GetText())
	}
	if want := []string{"1", "2", "3", "4, an hour back", "5"}; !slices.Equal(texts, want) {
		t.Errorf("got %q, want %q", texts, want)
	}
}

// TestLogRing: the log is bounded, and sorted by time.
func TestLogRing(t *testing.T) {
	l := New()
	for i := range LimitRecords + 10 {
		l.Add([]*wire.LogRecord{{Process: fmt.Sprint(i), TimeNs: int64(-i)}}, 1)
	}
	past, dropped, f := l.Follow(true)
	if len(past) != LimitRecords || past[0].GetTimeNs() != -LimitRecords-9 || dropped != LimitRecords+10 {
		t.Errorf("%d records, the first at %d, %d dropped", len(past), past[0].GetTimeNs(), dropped)
	}
	for range LimitBatches + 1 {
		l.Add([]*wire.LogRecord{{}}, 0)
	}
	n := 0
	for range f.Batches {
		n++
	}
	if n != LimitBatches {
		t.Errorf("a slow follower got %d batches", n)
	}
	big := strings.Repeat("x", 1<<20)
	for range 20 {
		l.Add([]*wire.LogRecord{{Text: big}}, 0)
	}
	if l.bytes > LimitBytes || len(l.records) > 16 {
		t.Errorf("%d records of %d bytes", len(l.records), l.bytes)
	}
}
