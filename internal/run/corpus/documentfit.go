package corpus

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/data"
)

// DocumentCounts count what did not fit the context. Package infer has a type with the same fields and their meaning.
type DocumentCounts struct {
	Total          int
	Cut            int
	Dropped        int
	TargetsLeftOut int64
}

// cutting has the counts of cut documents, and the number of targets that were kept.
type cutting struct {
	DocumentCounts
	kept int64
}

func (c cutting) plus(o cutting) cutting {
	c.Total, c.Cut, c.Dropped = c.Total+o.Total, c.Cut+o.Cut, c.Dropped+o.Dropped
	c.TargetsLeftOut, c.kept = c.TargetsLeftOut+o.TargetsLeftOut, c.kept+o.kept
	return c
}

// warnings returns warnings about what was cut and dropped.
func (c cutting) warnings(context int) (text []string) {
	if c.Cut > 0 {
		text = append(text, fmt.Sprintf("%d of %d documents are longer than the context of %d tokens and were cut (data.too_long = \"cut\")",
			c.Cut,
			c.Total, context))
	}
	if c.Dropped > 0 {
		text = append(text, fmt.Sprintf("%d of %d documents have no token to learn within the context of %d tokens and were skipped", c.Dropped,
			c.Total, context))
	}
	if n := len(text); n > 0 && c.TargetsLeftOut > 0 {
		text[n-1] += fmt.Sprintf("; of %d tokens to learn, %d are lost", c.kept+c.TargetsLeftOut, c.TargetsLeftOut)
	}
	return text
}

// place sets the file and the row of each document.
func place(text *data.Text, docs []data.Document) error {
	i := 0
	return text.Lines(func(file string, row int, _ []byte) error {
		if i < len(docs) {
			docs[i].File, docs[i].Row = file, row
		}
		i++
		return nil
	})
}

// fit makes records of documents, each at most as long as the context. tooLong is data.too_long.
func fit(docs []data.Document, context int, tooLong string) (r *data.Records, c cutting, err error) {
	r, c = &data.Records{}, cutting{DocumentCounts: DocumentCounts{Total: len(docs)}}
	for i, d := range docs {
		all, cut := learned(d.Learn), false
		if most := context + 1; len(d.IDs) > most {
			if tooLong == "refuse" {
				return nil, c,
					fmt.Errorf("document %d of %d (%s, row %d) has %d tokens, but the limit is %d for a context of %d; raise model.context, or set data.too_long = \"cut\"", i+1, len(docs), data.Plain(d.File), d.Row, len(d.IDs), most, context)
			}
			cut = true
			d.IDs, d.Learn = d.IDs[:most], d.Learn[:most]
		}
		kept := int64(0)
		if len(d.IDs) >= 2 {
			kept = learned(d.Learn)
		}
		c.kept, c.TargetsLeftOut = c.kept+kept, c.TargetsLeftOut+all-kept
		if kept == 0 {
			c.Dropped++
			continue
		}
		if cut {
			c.Cut++
		}
		r.Add(d.IDs, d.Learn)
	}
	if r.Len() == 0 {
		return nil, c, nothingToLearn(docs, c, context)
	}
	return r, c, nil
}

// learned counts the targets of a document. Its first token is not one.
func learned(learn []bool) (n int64) {
	for _, l := range learn[min(1, len(learn)):] {
		if l {
			n++
		}
	}
	return n
}

// nothingToLearn returns an error that names the document that needs the shortest context, or the first document.
func nothingToLearn(docs []data.Document, c cutting, context int) error {
	shortest, at := 0, 0
	for i, d := range docs {
		if n := slices.Index(d.Learn[min(1, len(d.Learn)):], true); n >= 0 && (shortest == 0 || n+1 < shortest) {
			shortest, at = n+1, i
		}
	}
	where := func(i int) string { return fmt.Sprintf("%s, row %d", data.Plain(docs[i].File), docs[i].Row) }
	switch {
	case len(docs) == 0:
		return fmt.Errorf("%w: the files have no documents", data.ErrEmpty)
	case shortest > 0:
		return fmt.Errorf("%w: none of %d documents has a token to learn within the context of %d tokens; the first token to learn, in %s, needs a context of %d; raise the context, or shorten the prompts",
			data.ErrTooShort, c.Total, context, where(at), shortest)
	}
	return fmt.Errorf("%w: none of %d documents has a token to learn (the first is %s): the completion or the messages of the role \"assistant\" are empty, missing, or have weight 0", data.ErrTooShort, c.Total, where(0))
}
