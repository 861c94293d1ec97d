package config

import (
	"strings"
	"testing"
)

// TestStoredSoftening: a temperature below the least is refused, but a run that an earlier version started with it can be read.
func TestStoredSoftening(t *testing.T) {
	const text = "[run]\nout = \"x\"\n[data]\nformat = \"documents\"\ntrain = [\"a.jsonl\"]\n[distill]\nfrom = \"runs/large\"\ntemperature = "
	for value, stored := range map[string]bool{"0.01": true, "0.005": true, "0.0": false, "-1.0": false, "101.0": false} {
		_, err := Parse("config.toml", []byte(text+value+"\n"), nil, nil)
		if value == "0.01" && err != nil || value != "0.01" && (err == nil || !strings.Contains(err.Error(), "distill.temperature")) {
			t.Errorf("%s: %v", value, err)
		}
		c, err := ParseStored("config.toml", []byte(text+value+"\n"))
		if stored != (err == nil) || err != nil && !strings.Contains(err.Error(), "distill.temperature") {
			t.Errorf("stored %s: %+v, %v", value, c, err)
		}
	}
}
