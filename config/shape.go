package config

// isOpen reports whether WithShape must still fill a key.
func (c *Config) isOpen(f *field) bool {
	return f.shape && c.Model.From != "" && !c.shapeLoaded && !c.IsSet(f.key)
}

// WithShape returns a copy of the configuration with the model's shape from the checkpoint in model.from, and validates it.
// A key of the shape that was given must have the same value. Dropout is not part of the shape and stays unchanged.
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

// WithTokenizer returns a copy of the configuration with another data.tokenizer.
func (c *Config) WithTokenizer(name string) *Config {
	own := *c
	own.Data.Tokenizer = name
	return &own
}

// WithChunks returns a copy of the configuration with another pipeline.chunks.
func (c *Config) WithChunks(n int) *Config {
	own := *c
	own.Pipeline.Chunks = n
	return &own
}
