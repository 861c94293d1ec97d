package telemetry

import (
	"encoding/json"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Sample is a text that the model wrote at a validation: a line of samples.jsonl.
type Sample struct {
	Step   int    `json:"step"`
	Prompt string `json:"prompt"`
	Text   string `json:"text"` // without the prompt
}

// maxSampleText is the number of bytes of a prompt and of a text that are kept, and maxSampleBytes the longest line:
// JSON writes a byte as up to six.
const (
	maxSampleText  = 1 << 20
	maxSampleBytes = 12*maxSampleText + 1<<10
)

var texts = lines[Sample]{what: "samples", most: maxSampleBytes, step: func(s Sample) int { return s.Step }}

// MarshalJSON writes a line of samples.jsonl. It cuts texts that are longer than the limit.
func (s Sample) MarshalJSON() ([]byte, error) {
	type plain Sample
	s.Prompt, s.Text = shorten(s.Prompt, maxSampleText), shorten(s.Text, maxSampleText)
	return json.Marshal(plain(s))
}

// UnmarshalJSON reads a line that MarshalJSON wrote. It ignores unknown keys.
func (s *Sample) UnmarshalJSON(data []byte) error {
	type plain Sample
	var p struct {
		plain
		Step *int `json:"step"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	if err := checkStep(p.Step); err != nil {
		return err
	}
	*s = Sample(p.plain)
	s.Step = *p.Step
	return nil
}

// SampleWriter appends to a samples.jsonl.
type SampleWriter = LineWriter[Sample]

// OpenSamples opens a samples.jsonl of a folder for appending, as OpenMarks does for an events.jsonl.
func OpenSamples(fsys folder.FS, name string, cutToStep int) (*SampleWriter, error) {
	return texts.openLater(fsys, name, cutToStep)
}

// ReadSamples returns the lines of a samples.jsonl, except a truncated last line.
func ReadSamples(path string) ([]Sample, error) { return texts.read(path) }

// ReadSamplesFrom is ReadSamples for a file of an open folder.
func ReadSamplesFrom(fsys folder.FS, name string) ([]Sample, error) {
	return texts.readFrom(fsys, name)
}
