package config

// PathValue is a value that names a file, a folder, or a pattern of files.
type PathValue struct {
	Key   string
	Value *string // points into the configuration
}

// Paths returns the values that name files, folders, or patterns of files. It leaves out empty ones.
func (c *Config) Paths() (all []PathValue) {
	add := func(key string, v *string) {
		if *v != "" {
			all = append(all, PathValue{key, v})
		}
	}
	for _, f := range c.fields() {
		if !f.path {
			continue
		}
		switch p := f.at(c).(type) {
		case *string:
			if f.names(*p) {
				continue
			}
			add(f.key, p)
		case *[]string:
			for n := range *p {
				add(f.key, &(*p)[n])
			}
		}
	}
	if c.HasOwnTable() {
		add("pipeline.schedule", &c.Pipeline.Schedule)
	}
	return all
}

// names reports whether a value of a key that holds paths is the name of something built in.
func (f *field) names(value string) bool {
	switch f.key {
	case "data.tokenizer":
		return !isPath(value)
	case "data.chat_template":
		return !isTemplatePath(value)
	}
	return false
}
