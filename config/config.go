package config

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/troupe-ml/troupe/scheduler"
)

// WithAutoGPU returns a copy of the configuration in which device.kind = "auto" is the GPU (gpu) or the CPU. Without a call it is the
// CPU. Neither TOML nor Diff shows the choice.
func (c *Config) WithAutoGPU(gpu bool) *Config {
	own := *c
	own.gpuByAuto = gpu
	return &own
}

// AutoGPU reports whether device.kind = "auto" is the GPU: see WithAutoGPU.
func (c *Config) AutoGPU() bool { return c.gpuByAuto }

// Load reads the file at path and parses it as Parse does.
func Load(path string, sets []string, env func(string) (string, bool)) (*Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the config: %w", err)
	}
	defer func() { _ = file.Close() }() // nothing was written
	if env != nil {
		env = withFolder(env, filepath.Dir(path))
	}
	// One byte over the limit is enough for Parse to refuse the file.
	text, err := io.ReadAll(io.LimitReader(file, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the config: %w", err)
	}
	return Parse(path, text, sets, env)
}

// Parse returns the configuration of a file's text, with the --set values applied to it. Messages
// use name as the file's name. The function env looks up environment variables, as
// os.LookupEnv does; nil means an empty environment. If the configuration has mistakes, the error
// is Errors.
func Parse(name string, text []byte, sets []string, env func(string) (string, bool)) (*Config, error) {
	return newReader(name).parse(text, sets, env)
}

// ParseStored returns the configuration that a run has stored. Keys without effect, which earlier versions
// accepted, count as not given. Keys may have the names of earlier versions, and the schedule may be
// one that another program registers.
func ParseStored(name string, text []byte) (*Config, error) {
	r := newReader(name)
	r.stored = true
	c, err := r.parse(text, nil, nil)
	if err == nil && scheduler.Removed(c.Pipeline.Schedule) != "" {
		// Every schedule gives the same bits, and a coordinator that resumes the run has no user to ask.
		c.Pipeline.Schedule = scheduler.DefaultSchedule(c.Pipeline.Stages, c.Pipeline.Chunks)
	}
	return c, err
}

func (r *reader) parse(text []byte, sets []string, env func(string) (string, bool)) (*Config, error) {
	if env == nil {
		env = func(string) (string, bool) { return "", false }
	}
	r.readFile(text)
	for i, set := range sets {
		r.readSet(i, set)
	}

	c := &Config{file: r.file, headers: r.headers, given: make(map[string]Pos)}
	c.setDefaults()
	for section, n := range r.tables {
		c.makeTables(section, n)
	}
	for _, f := range c.fields() {
		e, ok := r.entries[f.key]
		if !ok {
			continue
		}
		c.given[f.key] = e.pos
		if err := f.assign(c, e, r.stored, env); err != nil {
			r.fail(err)
			r.suspect[f.key] = true
		}
		if f.path {
			c.noteUnset(f.key, e, env)
		}
	}
	if r.stored && !c.IsSet("data.special_tokens") && c.Text() && c.IDBytes() == 0 {
		c.Data.SpecialTokens = SpecialAsText // as before the key existed
	}
	if r.incomplete {
		// Judging keys against each other needs all of them.
		return nil, r.errs.sorted()
	}
	c.resolve()
	if r.stored {
		c.dropIdle()
		if c.Cluster.LeaseS <= c.Cluster.SilenceS { // earlier versions accepted it
			defaults := new(Config)
			defaults.setDefaults()
			c.Cluster.LeaseS, c.Cluster.SilenceS = defaults.Cluster.LeaseS, defaults.Cluster.SilenceS
		}
	}
	if errs := c.checkRelations(r.suspect, r.errs); len(errs) > 0 {
		return nil, errs.sorted()
	}
	return c, nil
}

// Where returns the origin of a key's value: a position in the file, a --set, or the zero Pos for a
// default. A value that WithShape filled in has the origin of model.from.
func (c *Config) Where(key string) Pos {
	if pos, ok := c.given[key]; ok {
		return pos
	}
	if f := lookup(key); f != nil && f.shape && c.shapeLoaded {
		return c.given["model.from"]
	}
	return Pos{}
}

// IsSet reports whether the file or a --set has the key, even with the value of its
// default.
func (c *Config) IsSet(key string) bool {
	_, ok := c.given[key]
	return ok
}

// Errorf returns an error at a key, for checks in other packages. It wraps errors as fmt.Errorf does.
func (c *Config) Errorf(key, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Pos: c.Where(key), Key: key, Msg: err.Error(), wrapped: err}
}
