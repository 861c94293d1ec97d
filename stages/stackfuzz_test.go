package stages_test

import (
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// FuzzStack: whatever model.stack says is a model whose forward can be recorded, or an error.
func FuzzStack(f *testing.F) {
	for _, seed := range []string{
		"input field=x\ndense out=8 act=gelu\nnorm\ndropout p=0.5\ntanh\ndense out=3\ncross_entropy",
		"embed field=y ids=3 out=4\nrelu\ndense out=4\nmse field=x",
		"input\ntest-scale by=2\ndense out=0\ncross_entropy field=z",
		"dense out=-1 act=none dropout=NaN\n\n=\nmse", "input\ninput\nembed ids=1e9\nloss", "input field=x\ndropout p=2\nmse field=x",
	} {
		f.Add(seed)
	}
	fields := []stages.Field{{Name: "x", Shape: []int{4}}, {Name: "y", DType: tensorops.Int32, Classes: 3}, {Name: "v", Shape: []int{-1, 2}}}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := stages.NewModel(stages.Config{Family: stages.Stack, Layout: strings.Split(text, "\n"), Fields: fields})
		if err == nil {
			_, err = m.Shapes(2)
		}
		if err != nil && strings.Contains(err.Error(), "panic: ") {
			t.Error(err)
		}
	})
}
