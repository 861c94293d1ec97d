package corpus

import (
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"
)

// TestLargeStream reads all of the file TROUPE_STREAM as a stream, and reports the most memory that the process had.
func TestLargeStream(t *testing.T) {
	name := os.Getenv("TROUPE_STREAM")
	if name == "" {
		t.Skip("TROUPE_STREAM names no file of documents")
	}
	began := time.Now()
	r := openRun(t, t.TempDir(), fmt.Sprintf("model.context = 256\nbatch = {sequences = 4, microbatch = 1}\n"+
		"data = {train = ['%s'], format = 'documents', stream = true}", name))
	defer r.close()
	for step := int64(1); ; step += 1000 {
		r.sequence(step, 0)
		if n, documents, tokens := r.data.parts[0].train.Size(); n > 0 {
			t.Logf("%d sequences, %d documents, %d tokens in %v", n, documents, tokens, time.Since(began).Round(time.Second))
			break
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	t.Logf("most memory: %s", regexp.MustCompile(`VmHWM:.*`).Find(status))
}
