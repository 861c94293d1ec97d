package config

// isOpen reports whether a key waits for LoadShape.
func (c *Config) isOpen(f *field) bool {
	return f.shape && c.Model.From != "" && !c.shapeLoaded && !c.IsSet(f.key)
}

// LoadShape fills the keys of the model's shape with those of the checkpoint
// that model.from names, and checks the result. A key that was given as well must
// say the same; dropout is no part of the shape and stays as it is. After an
// error c is of no use.
func (c *Config) LoadShape(shape Model) error {
	source := &Config{Model: shape}
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
		f.store(c, f.load(source))
	}
	if len(errs) > 0 {
		return errs.sorted()
	}
	c.shapeLoaded = true
	return c.Validate()
}
