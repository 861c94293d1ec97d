package config

import _ "embed"

//go:embed template.toml
var template string

// Template returns a commented configuration to start from. Every key stands in
// it; those that most runs leave alone are commented out, with their defaults.
func Template() []byte { return []byte(template) }
