package config

import (
	"fmt"
	"slices"
)

// sourceName checks for the name of a source of documents.
var sourceName = &check{setName.allows, func(v any) (string, string) {
	problem, hint := setName.judge(v)
	switch v.(string) {
	case MainSet:
		return "", ""
	case "":
		return "the source has no name", `name it, such as name = "chat"`
	}
	return problem, hint
}}

// sources checks each [[data.source]], and that their names differ.
func (c *checker) sources() {
	d := c.Data
	if len(d.Source) > 0 && c.clean("data.train") && len(d.Train) > 0 {
		c.fail("data.train", render(d.Train)+" is set, but [[data.source]] is set, too", "remove one of the two")
	}
	if len(d.Source) > 0 && c.clean("data.format") && !c.Documents() {
		c.failAt(c.table("data.source", 1), "data.source", "several sources need documents, but "+c.say("data.format"),
			`set format = "documents"`)
	}
	if c.clean("data.packing", "data.stream") && d.Packing != PackNone {
		switch {
		case d.Stream:
			c.disagree("data.packing", "data.stream", "needs all documents before the first step, but "+c.say("data.stream"),
				"leave one of the two out")
		case len(d.Source) > 0:
			c.fail("data.packing", render(d.Packing)+" is set, but [[data.source]] is set, too; several sources are not packed yet",
				"leave packing out")
		}
	}
	for i, s := range d.Source {
		key := func(name string) string { return fmt.Sprintf("data.source[%d].%s", i+1, name) }
		if c.clean(key("name")) {
			first := slices.IndexFunc(d.Source, func(o Source) bool { return o.Name == s.Name })
			switch {
			case s.Name == "":
				msg, hint := sourceName.judge("")
				c.failAt(c.table("data.source", i+1), key("name"), msg, hint)
			case first < i:
				c.fail(key("name"), fmt.Sprintf("%s is the name of [[data.source]] %d, too", quoted(s.Name), first+1),
					"give each source a name of its own")
			}
		}
		if c.clean(key("files")) && len(s.Files) == 0 {
			c.failAt(c.table("data.source", i+1), key("files"), "no files are given",
				`set it to a list of files, patterns or datasets, such as ["data/chat.parquet"]`)
		}
	}
}
