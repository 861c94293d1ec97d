// Package config reads the description of a run: one TOML file, the --set
// values of a command line on top of it, and defaults for the rest.
//
// Reading is strict. An unknown key, a wrong type, an impossible value or two
// values that disagree is an error with file, row and column and a suggestion,
// and all mistakes of a file are reported at once (Errors). What Parse returns
// is resolved: every key has the value that the run will use, TOML prints them,
// and parsing that text again gives the same configuration.
//
// The rules, in the order in which they apply:
//
//   - A --set section.key=value replaces the file's value before that is looked
//     at; of two for one key the later one holds. The value is TOML, else a
//     plain string, and a string for a list is a list of one.
//   - In the keys that hold paths (run.out, model.from, data.train, data.val)
//     ${VAR} stands for an environment variable, and ${VAR:-text} for text where
//     the variable is unset or empty. An unset variable without a text is an
//     error. A lone $ is an ordinary character.
//   - Relative paths are relative to the working directory, not to the file.
//   - Keys that were not given take their defaults, some of which follow other
//     keys (resolve). With model.from, the keys that describe the model's shape
//     stay empty until LoadShape is told what that checkpoint holds.
//   - Every value, and every pair of values that must fit together, is checked. So
//     is whether a key has an effect (idleKeys). What a run has stored is read more
//     leniently there (ParseStored).
//
// A Config remembers where each value came from (Where), so that those who know
// more, such as what a layout means or whether a file exists, can point at the
// same place (Errorf).
//
// The package must never know models, data or devices: what takes facts about them is judged where
// they are known.
package config
