package main

import (
	"bytes"
	"os"
	"testing"
)

// What is committed is what the generator writes.
func TestUpToDate(t *testing.T) {
	files, err := generate(kernels())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the generator writes: run go run . in this folder", path)
		}
	}
}
