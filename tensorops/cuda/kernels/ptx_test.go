package kernels

import (
	"bytes"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// TestPTXIsCurrent: what the binary carries was made from the sources beside it, a file
// for each.
func TestPTXIsCurrent(t *testing.T) {
	if current, err := PTXIsCurrent(); err != nil || !current {
		t.Fatalf("the PTX in kernels/ptx is not that of the sources: run make ptx (%v)", err)
	}
	files, err := fs.Glob(Files, "*.cu")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	made := map[string]bool{ptxRecord: true}
	for _, file := range files {
		made[PTXName(file)] = true
		text, err := PTX(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Contains(text, []byte(".target sm_80")) || !bytes.Contains(text, []byte(".entry ")) {
			t.Errorf("%s is not PTX of kernels for %s", PTXName(file), PTXTarget)
		}
	}
	there, err := ptx.ReadDir("ptx")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range there {
		if !made[f.Name()] {
			t.Errorf("ptx/%s belongs to no kernel file: run make ptx", f.Name())
		}
	}
	if record, err := PTXRecord(); err != nil || !strings.Contains(record, fmt.Sprintf("\nNVRTC %d.", PTXDriver)) {
		t.Errorf("record %q, %v", record, err)
	}
}
