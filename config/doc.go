// Package config reads the configuration of a run: one TOML file, the --set
// values of a command line on top of it, and defaults for the rest.
//
// Reading is strict. An unknown key, a wrong type, a value out of range, or two
// values that contradict each other are errors. Each error has the file, the row,
// the column and a suggestion, and all errors of a file are reported at once
// (Errors). Parse returns a resolved configuration: every key has the value that the
// run will use. Config.TOML prints all values, and parsing that text gives the same
// configuration again.
//
// These rules apply in this order:
//
//   - A --set section.key=value replaces the file's value before that value is
//     checked. If one key is set twice, the later --set wins. The value is TOML, or
//     else a plain string. For a list, a string is a list with one entry.
//   - In keys that hold paths (run.out, model.from, data.train, data.val and others)
//     ${VAR} is an environment variable, and ${VAR:-text} uses text if the variable
//     is unset or empty. An unset variable without a text is an error. A $ without
//     a brace is an ordinary character.
//   - Relative paths are relative to the working directory, not to the file. ${CONFIG_DIR} is the
//     file's folder.
//   - Keys that were not given get their defaults, some of which depend on other
//     keys. With model.from, the keys of the model's shape stay empty until WithShape
//     fills them from that checkpoint.
//   - Every value is checked, then every pair of values that must fit together, then
//     whether each key has an effect. ParseStored reads the configuration of an
//     existing run and is more lenient.
//
// A Config remembers where each value came from (Config.Where). Other packages use
// this to report errors at the same position (Config.Errorf), such as a missing file.
//
// The comments in keys.go are the texts of the keys: Template and docs/config.md
// take them from there.
//
// The package must never know models, data or devices: checks that need facts about
// them belong to the packages that know them.
package config
