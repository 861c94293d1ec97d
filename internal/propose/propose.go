package propose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
)

// Options say what to propose.
type Options struct {
	Patterns []string // files, folders and patterns of files; none: no data is known yet
	From     string   // folder of the model to tune; "": a new model
	Name     string   // of the run; "": that of the data
	FastBF16 bool     // the devices compute in bfloat16 fast
}

// Proposal is a configuration for data.
type Proposal struct {
	About    string // what the data is, in words
	Settings []config.Setting
	Notes    []string // what else one can do, in sentences
	Bytes    int64    // of the data to train on, decompressed; estimated for compressed files
	Chat     bool     // the data is conversations
	ownVal   bool     // the data is a dataset with a split to validate on
}

func (p *Proposal) set(key string, value any, note string) {
	p.Settings = append(p.Settings, config.Setting{Key: key, Value: value, Note: note})
}

// has reports whether a key is set.
func (p *Proposal) has(key string) bool {
	return slices.ContainsFunc(p.Settings, func(s config.Setting) bool { return s.Key == key })
}

func (p *Proposal) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// For proposes a configuration.
func For(o Options) (*Proposal, error) {
	base, err := baseOf(o.From)
	if err != nil {
		return nil, err
	}
	p := &Proposal{}
	if len(o.Patterns) == 0 {
		p.set("data.train", []string{"data/*.txt"}, "Files, folders, or patterns; ** stands for any folders")
		length := length{units: 1 << 20, context: 128}
		if base != nil {
			base.tune(p, length, o)
		} else {
			p.language(length)
		}
		p.set("run.name", cmp.Or(o.Name, "run"), "The output folder is runs/NAME")
		return p, nil
	}
	names, splitVal, dataset, err := find(o.Patterns)
	if err != nil {
		return nil, err
	}
	all, err := look(names)
	if err != nil {
		return nil, err
	}
	is, err := sameKind(all)
	if err != nil {
		return nil, err
	}
	train, val := all, []file(nil)
	patterns := o.Patterns
	if !dataset {
		train, val = apart(all)
		patterns = shorter(patterns, train)
	} else if is != isLines {
		return nil, fmt.Errorf("%w: %s has %s beside a dataset; give files of one kind", ErrData, words.OneLine(strings.Join(patterns, " ")), is)
	}
	p.ownVal = len(splitVal) > 0
	p.Bytes = bytesOf(train)
	if len(val) > 0 {
		patterns = namesOf(train)
		if is != isIDX {
			p.set("data.val", namesOf(val), "Files to validate on")
		}
	}
	p.set("data.train", patterns, "Files, folders, or patterns; ** stands for any folders")
	switch is {
	case isText:
		err = p.text(patterns, train, base, o)
	case isLines:
		err = p.lines(train, base, o)
	case isIDs:
		err = p.ids(train, base, o)
	case isCSV:
		err = p.csv(train)
	case isIDX:
		err = p.idx(train, val)
	}
	if err == nil && base != nil && !p.has("model.from") {
		err = fmt.Errorf("%w: the model of --from is for text, and this data is samples (%s); leave --from out", ErrData, is)
	}
	if err != nil {
		return nil, err
	}
	p.About = fmt.Sprintf("%s: %s", listOf(o.Patterns, all), p.About)
	p.set("run.name", cmp.Or(o.Name, nameOf(patterns[0]), "run"), "The output folder is runs/NAME")
	return p, nil
}

func namesOf(all []file) []string {
	names := make([]string, len(all))
	for i, f := range all {
		names[i] = f.name
	}
	return names
}

// listOf names files in a few words.
func listOf(patterns []string, all []file) string {
	if len(all) == 1 {
		return words.OneLine(all[0].name)
	}
	return fmt.Sprintf("%s (%s)", words.OneLine(strings.Join(patterns[:min(2, len(patterns))], " ")), words.Plural(len(all), "file"))
}

func bytesOf(all []file) (n int64) {
	for _, f := range all {
		n += f.bytes
	}
	return n
}

// length is how much data there is.
type length struct {
	units   int64 // tokens, or documents if records is set
	context int   // of a new model, or of the documents to tune it on
	records bool  // each unit is a sequence of its own
	mean    int   // tokens of a document, if records is set
	packed  bool  // short documents share a sequence
}

// sequences in a step.
const newSequences, tuneSequences = 16, 8

// epochSteps returns the number of steps in an epoch.
func (l length) epochSteps(sequences int) int64 {
	windows := l.units * 9 / 10
	switch {
	case l.packed:
		windows = windows * int64(l.mean) / int64(l.context)
	case !l.records:
		windows /= int64(l.context)
	}
	return max(1, windows/int64(sequences))
}

// stepsFor returns a round number of steps for some epochs.
func (l length) stepsFor(epochs int64, sequences, least, most int) int {
	steps := int(min(epochs*l.epochSteps(sequences), int64(most)))
	switch {
	case steps <= least:
		return least
	case steps > 400:
		return steps / 100 * 100
	}
	return steps / 10 * 10
}

// mostValidations bounds the validations of a proposed run.
const mostValidations = 10

// setSteps sets what follows from the number of steps.
func (p *Proposal) setSteps(steps int, l length, sequences int) {
	p.set("run.steps", steps, fmt.Sprintf("Updates of the weights; one epoch is about %s", words.CountOf(l.epochSteps(sequences), "step")))
	p.set("run.eval_every", validateEvery(steps), "Validate every N steps")
}

// SetSteps sets another number of steps, and what follows from it.
func (p *Proposal) SetSteps(steps int) {
	set := func(key string, value int) {
		for i := range p.Settings {
			if p.Settings[i].Key == key {
				p.Settings[i].Value = value
			}
		}
	}
	set("run.steps", steps)
	set("run.eval_every", validateEvery(steps))
	set("optimizer.warmup_steps", warmupSteps(steps))
}

// warmupSteps returns the number of steps in which a tuning's rate rises.
func warmupSteps(steps int) int { return max(1, steps/10) }

// validateEvery returns the number of steps between validations.
func validateEvery(steps int) int {
	every := max(1, steps/8)
	if every > 20 {
		every -= every % 10
	}
	if steps/every > mostValidations {
		every += 10
	}
	return every
}

// language sets the keys of a new language model.
func (p *Proposal) language(l length) {
	sequences := newSequences
	p.pack(&l, sequences)
	steps := l.stepsFor(4, sequences, 200, 2000)
	p.setSteps(steps, l, sequences)
	p.set("run.checkpoint_every", max(50, steps/4), "Write a checkpoint every N steps, and at the end")
	p.set("run.sample_tokens", min(100, l.context*3/4), "Tokens of sample text at each validation; 0: none")
	p.set("model.family", "gpt2", `"gpt2", "llama", "qwen3", "smollm3" or another family`)
	p.set("model.layers", 4, "Transformer blocks; more learn more, and are slower")
	p.set("model.hidden", 128, "Width of the model; a multiple of heads")
	p.set("model.heads", 4, "Attention heads")
	p.set("model.context", l.context, "Tokens in a sequence")
	p.set("batch.sequences", sequences, "Sequences in a step")
	p.set("optimizer.lr", 1e-3, "Peak learning rate")
	p.set("pipeline.stages", 1, "Stages of the pipeline: actors that compute")
}

// leastPackedSteps is the least number of steps of an epoch with which packing is proposed. With fewer, a run on few
// documents would have too few updates.
const leastPackedSteps = 10

// pack proposes that documents share sequences, if they are short and there are enough of them.
func (p *Proposal) pack(l *length, sequences int) {
	if !l.records || l.mean == 0 || 2*l.mean > l.context {
		return
	}
	if l.packed = true; l.epochSteps(sequences) < leastPackedSteps {
		l.packed = false
		return
	}
	p.set("data.packing", "first-fit", fmt.Sprintf("About %d documents share a sequence; none sees another", l.context/l.mean))
}

// contextFor returns the number of tokens in a sequence for a text.
func contextFor(tokens int64, most int) int {
	context := most
	for context > 8 && int64(context) > tokens/50 { // a tenth is for validation, in several windows
		context /= 2
	}
	return context
}
