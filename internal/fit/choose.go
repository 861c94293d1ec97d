package fit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/propose"
)

// ErrMemory means that no option fits the memory.
var ErrMemory = errors.New("the model can't be tuned in this memory")

// Options say what to choose from.
type Options struct {
	Proposal *propose.Proposal
	Sets     []string // section.key=value, which override the proposal
	Env      func(string) (string, bool)
	Free     int64 // bytes that the run may take; 0: not known
	GPU      bool  // the device "auto" is a GPU, and Free is its memory

	AllWeights bool // without adapters
}

// Choice is the configuration to run.
type Choice struct {
	Config   *config.Config
	Settings []config.Setting // those of Config
	Need     Need
	Why      []string // its memory, and that of each option before it
}

// Choose returns the first option that fits: the longest context first, then all weights before adapters before a base in 8 and in 4
// bits, then large microbatches before small ones and before recomputation.
func Choose(o Options) (*Choice, error) { return choose(o, needOf) }

// forecast is needOf. Tests replace it.
type forecast func(c *config.Config, data int64) (Need, error)

// search tries options.
type search struct {
	Options
	forecast forecast
	limit    int64           // device.memory_gib in bytes; 0: none
	failed   error           // why an option is not valid: the first of them
	rejected []rejection     // by context and method, and those of the chosen method
	never    map[string]bool // methods whose weights alone do not fit
}

// option is a configuration to try.
type option struct {
	method   method
	config   *config.Config
	settings []config.Setting
}

func (o option) String() string { return o.method.name + ", " + shape(o.config) }

// rejection is an option that does not fit: the one of a context and a method that needs the least.
type rejection struct {
	text string
	need int64
}

func choose(o Options, f forecast) (*Choice, error) {
	s := &search{Options: o, forecast: f, never: make(map[string]bool)}
	for _, context := range contexts(intOf(o.Proposal.Settings, "model.context")) {
		for _, m := range methods() {
			if s.never[m.name] || s.AllWeights && m.adapter {
				continue
			}
			all := s.options(m, context)
			if len(all) == 0 {
				continue
			}
			c, err := s.try(all)
			if c != nil {
				return c, nil
			}
			if err != nil {
				s.failed = cmp.Or(s.failed, err)
			}
		}
	}
	if len(s.rejected) == 0 {
		return nil, cmp.Or(s.failed, errors.New("no option is left to try"))
	}
	least := slices.MinFunc(s.rejected, func(a, b rejection) int { return cmp.Compare(a.need, b.need) })
	return nil, fmt.Errorf("%w: %s; the smallest option needs about %s (%s); free memory, raise the limit, or choose a smaller model",
		ErrMemory, s.bounds(), words.Bytes(least.need), least.text)
}

// options returns the options of a method and a context. --set may leave one or none of them.
func (s *search) options(m method, context int) (all []option) {
	base := s.Proposal.Settings
	for _, p := range parts(intOf(base, "batch.sequences")) {
		settings := with(base, append(slices.Concat(m.settings, p.settings()), config.Setting{Key: "model.context", Value: context})...)
		c, settings, err := s.parse(settings)
		switch {
		case err != nil:
			s.failed = cmp.Or(s.failed, err)
		case !m.is(c) || slices.ContainsFunc(all, func(o option) bool { return shape(o.config) == shape(c) }):
		default:
			all = append(all, option{m, c, settings})
			s.limit = int64(c.Device.MemoryGiB * (1 << 30)) // all options have the same
		}
	}
	return all
}

// try returns the first option that fits; nil: none does.
func (s *search) try(all []option) (*Choice, error) {
	last := all[len(all)-1] // it needs the least
	need, err := s.forecast(last.config, s.Proposal.Bytes)
	if err != nil {
		return nil, err
	}
	if !s.fits(need) {
		r := rejection{last.String(), need.Bytes()}
		if least := (Need{need.Least, need.Least, restOf(need.Least, s.Proposal.Bytes)}); !s.fits(least) {
			s.never[last.method.name] = true
			r = rejection{last.method.name + ", without activations", least.Bytes()}
		}
		s.rejected = append(s.rejected, r)
		return nil, nil
	}
	for _, o := range all {
		if need, err = s.forecast(o.config, s.Proposal.Bytes); err != nil {
			return nil, err
		}
		if s.fits(need) {
			c, settings := s.bounded(o, need)
			return &Choice{c, settings, need, s.why(o, need)}, nil
		}
		s.rejected = append(s.rejected, rejection{o.String(), need.Bytes()})
	}
	return nil, nil
}

// keptShare is the share of the memory for tensors that a run may fill with what it keeps for reuse. The rest is a margin: other
// programs of the machine or the control group take memory, too, while the run does.
const keptShare = 0.9

// bounded returns an option with a limit of its tensors, as far as that is not set: before a run exceeds it, it frees what it keeps for
// reuse. Microbatches may take a little more than the longest one alone, which is what is forecast.
func (s *search) bounded(o option, n Need) (*config.Config, []config.Setting) {
	c := o.config
	if s.Free == 0 || s.limit > 0 || s.GPU || c.Pipeline.Stages*c.Parallel.Data*c.Parallel.Context*slices.Max(c.Parallel.Tensor) > 1 {
		return c, o.settings
	}
	const inGiB = 1000.0 / (1 << 30) // three digits
	gib := max(math.Floor(keptShare*float64(tensorsIn(s.Free, s.Proposal.Bytes))*inGiB), math.Ceil(float64(n.Tensors)*inGiB)) / 1000
	settings := with(o.settings, config.Setting{Key: "device.memory_gib", Value: gib,
		Note: "What is free for tensors: before they exceed it, memory that is kept for reuse is freed"})
	bounded, _, err := s.parse(settings)
	if err != nil {
		return c, o.settings
	}
	return bounded, settings
}

// fits reports whether a need is within the free memory and device.memory_gib.
func (s *search) fits(n Need) bool {
	return (s.Free == 0 || n.Bytes() <= s.Free) && (s.limit == 0 || n.Tensors <= s.limit)
}

// bounds says what the memory is.
func (s *search) bounds() string {
	text := "the free memory is not known"
	if s.Free > 0 {
		text = words.Bytes(s.Free) + " are free"
	}
	if s.limit > 0 {
		text += ", and device.memory_gib allows " + words.Bytes(s.limit) + " of tensors"
	}
	return text
}

// parse reads settings with the keys of --set, and returns them with the values of those.
func (s *search) parse(settings []config.Setting) (*config.Config, []config.Setting, error) {
	set := func(key string) bool {
		return slices.ContainsFunc(s.Sets, func(text string) bool { return keyOf(text) == key })
	}
	if set("adapter.from") { // its directory has the rank
		settings = slices.DeleteFunc(settings, func(s config.Setting) bool { return s.Key == "adapter.rank" })
	}
	c, err := config.Parse("config.toml", config.Outline(nil, settings), s.Sets, s.Env)
	if err != nil {
		return nil, nil, err
	}
	c = c.WithAutoGPU(s.GPU)
	for _, e := range config.Entries(c) {
		if set(e.Key) {
			settings = with(settings, config.Setting{Key: e.Key, Value: config.TOML(e.Value)})
		}
	}
	return c, settings, nil
}

// keyOf returns the key of section.key=value.
func keyOf(set string) string {
	key, _, _ := strings.Cut(set, "=")
	return strings.TrimSpace(key)
}

// why says what the choice needs, and what was rejected.
func (s *search) why(o option, n Need) []string {
	lines := []string{fmt.Sprintf("chosen: %s: about %s; %s", o, words.Bytes(n.Bytes()), s.bounds())}
	for _, r := range s.rejected[:min(len(s.rejected), mostRejected)] {
		lines = append(lines, fmt.Sprintf("too large: %s: about %s", r.text, words.Bytes(r.need)))
	}
	if more := len(s.rejected) - mostRejected; more > 0 {
		lines = append(lines, fmt.Sprintf("too large: %s more", words.Plural(more, "option")))
	}
	return lines
}

// mostRejected bounds the lines about options that do not fit.
const mostRejected = 8

// with returns settings with others in place of those of the same keys.
func with(settings []config.Setting, others ...config.Setting) []config.Setting {
	settings = slices.Clone(settings)
	for _, o := range others {
		k := slices.IndexFunc(settings, func(s config.Setting) bool { return s.Key == o.Key })
		if k < 0 {
			settings = append(settings, o)
			continue
		}
		if o.Note == "" {
			o.Note = settings[k].Note
		}
		settings[k] = o
	}
	return settings
}

// intOf returns the value of a key; 0: it is not set.
func intOf(settings []config.Setting, key string) int {
	for _, s := range settings {
		if n, is := s.Value.(int); is && s.Key == key {
			return n
		}
	}
	return 0
}
