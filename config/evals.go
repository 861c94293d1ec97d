package config

import (
	"fmt"
	"regexp"
	"slices"
)

// MainSet is the name of the validation set of data.val or data.val_fraction. No [[eval]] has it.
const MainSet = "val"

// HasMainSet reports whether the run validates on data.val or data.val_fraction. If not, the first [[eval]] decides which checkpoint
// is the best, and when the run stops early.
func (c *Config) HasMainSet() bool {
	return len(c.Data.Val) > 0 || c.Data.ValFraction > 0 || len(c.Eval) == 0
}

// EvalSets returns the names of the run's validation sets: MainSet, if the run has it, then those of [[eval]]. The first one decides
// which checkpoint is the best.
func (c *Config) EvalSets() (names []string) {
	if c.HasMainSet() {
		names = append(names, MainSet)
	}
	for _, e := range c.Eval {
		names = append(names, e.Name)
	}
	return names
}

// resolve sets the keys of the nth [[eval]] whose defaults follow from [data].
func (e *Eval) resolve(c *Config, nth int) {
	given := func(name string) bool { return c.IsSet(fmt.Sprintf("eval[%d].%s", nth, name)) }
	if !given("format") {
		e.Format = c.Data.Format
	}
	if !given("fields") {
		e.Fields = nil
		if e.Format == c.Data.Format {
			e.Fields = slices.Clone(c.Data.Fields)
		}
	}
}

var setNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// setName checks for the name of a validation set, which is part of file names, metrics and URLs.
var setName = &check{fmt.Sprintf("up to %d letters, digits and . _ -", maxSetNameBytes), func(v any) (string, string) {
	name := v.(string)
	switch {
	case name == "":
		return "the set has no name", `name it, such as name = "legal"`
	case !setNamePattern.MatchString(name):
		return quoted(name) + " is not a valid name of a set", "use letters, digits and . _ -, and start with a letter or a digit"
	case len(name) > maxSetNameBytes:
		return fmt.Sprintf("%d bytes are too long", len(name)), fmt.Sprintf("use at most %d", maxSetNameBytes)
	case name == MainSet:
		return quoted(name) + " is the set of data.val and data.val_fraction", "use another name"
	}
	return "", ""
}}

// evals checks each [[eval]], and that their names differ.
func (c *checker) evals() {
	for i, e := range c.Eval {
		key := func(name string) string { return fmt.Sprintf("eval[%d].%s", i+1, name) }
		if c.clean(key("name")) {
			first := slices.IndexFunc(c.Eval, func(o Eval) bool { return o.Name == e.Name })
			switch {
			case e.Name == "":
				msg, hint := setName.judge("")
				c.failAt(c.table("eval", i+1), key("name"), msg, hint)
			case first < i:
				c.fail(key("name"), fmt.Sprintf("%s is the name of [[eval]] %d, too", quoted(e.Name), first+1), "give each set a name of its own")
			}
		}
		if c.clean(key("files")) && len(e.Files) == 0 {
			c.failAt(c.table("eval", i+1), key("files"), "no files are given", `set it to a list of files or patterns, such as ["data/legal.txt"]`)
		}
		if !c.clean(key("format"), "data.format") {
			continue
		}
		switch tokens, theirs := c.Text(), (&Config{Data: Data{Format: e.Format}}).Text(); {
		case tokens != theirs, !tokens && e.Format != c.Data.Format:
			c.disagree(key("format"), "data.format", "cannot be read by a model of "+c.say("data.format"), "use the format of data.format")
		case e.Format != "documents" && len(e.Fields) > 0 && c.IsSet(key("fields")) && c.clean(key("fields")):
			c.disagree(key("fields"), key("format"), "has no effect with "+c.say(key("format")), `leave fields out, or set format = "documents"`)
		}
	}
}

// table returns the position of an array's table, for an error about a missing key.
func (c *Config) table(section string, nth int) Pos {
	return c.section(fmt.Sprintf("%s[%d]", section, nth))
}
