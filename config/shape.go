package config

// isOpen reports whether a key waits for WithShape.
func (c *Config) isOpen(f *field) bool {
	return f.shape && c.Model.From != "" && !c.shapeLoaded && !c.IsSet(f.key)
}

// WithShape is the configuration with the keys of the model's shape as in the checkpoint
// that model.from names, checked. A key that was given as well must say the same; dropout is no part of the shape and
// stays as it is.
func (c *Config) WithShape(shape Model) (*Config, error) {
	source, own := &Config{Model: shape}, *c
	var errs Errors
	for i := range schema {
		f := &schema[i]
		if !f.shape {
			continue
		}
		theirs, ours := render(f.load(source)), render(f.load(c))
		if c.IsSet(f.key) && ours != theirs {
			err := c.Errorf(f.key, "%s, but the checkpoint in model.from has %s", ours, theirs)
			err.Hint = "leave the key out, or start from another checkpoint"
			errs = append(errs, err)
			continue
		}
		f.store(&own, f.load(source))
	}
	if len(errs) > 0 {
		return nil, errs.sorted()
	}
	own.shapeLoaded = true
	return &own, own.Validate()
}

// WithTokenizer is the configuration with another data.tokenizer.
func (c *Config) WithTokenizer(name string) *Config {
	own := *c
	own.Data.Tokenizer = name
	return &own
}

// WithChunks is the configuration with another pipeline.chunks.
func (c *Config) WithChunks(n int) *Config {
	own := *c
	own.Pipeline.Chunks = n
	return &own
}

// WithDefaultsOf is the configuration with what a stored one of the same run has where nobody has set it now: defaults
// that depend on the run's length, or that were others when the run began. It is checked.
func (c *Config) WithDefaultsOf(stored *Config) (*Config, error) {
	own := *c
	if !c.IsSet("optimizer.warmup_steps") {
		own.Optimizer.WarmupSteps = stored.Optimizer.WarmupSteps
		if err := own.Validate(); err != nil {
			return nil, err
		}
	}
	if !c.IsSet("data.special_tokens") && c.Text() && c.IDBytes() == 0 {
		own.Data.SpecialTokens = stored.Data.SpecialTokens // runs that are older than the key took names for text
	}
	return &own, nil
}
