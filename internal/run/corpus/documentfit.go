package corpus

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/data"
)

// DocumentCounts count documents and their tokens, and what did not fit the context. Package infer has a type with the same fields and
// their meaning.
type DocumentCounts struct {
	Total          int
	Cut            int
	Dropped        int
	TargetsLeftOut int64
	Tokens         int64
	Learned        int64
	Longest        int
}

func (c DocumentCounts) plus(o DocumentCounts) DocumentCounts {
	return DocumentCounts{Total: c.Total + o.Total, Cut: c.Cut + o.Cut, Dropped: c.Dropped + o.Dropped,
		TargetsLeftOut: c.TargetsLeftOut + o.TargetsLeftOut, Tokens: c.Tokens + o.Tokens, Learned: c.Learned + o.Learned,
		Longest: max(c.Longest, o.Longest)}
}

// warnings returns warnings about what was cut and dropped.
func (c DocumentCounts) warnings(context int) (text []string) {
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
		text[n-1] += fmt.Sprintf("; of %d tokens to learn, %d are lost", c.Learned+c.TargetsLeftOut, c.TargetsLeftOut)
	}
	if n := len(text); n > 0 && c.Longest > context+1 {
		text[n-1] += fmt.Sprintf("; a context of %d holds the longest document", c.Longest-1)
	}
	return text
}

// fit makes records of documents, each at most as long as the context. tooLong is data.too_long.
func fit(docs *data.Documents, context int, tooLong string) (r *data.Records, c DocumentCounts, err error) {
	r, c = data.NewRecords(docs), DocumentCounts{Total: docs.Len()}
	for i := range docs.Len() {
		n, cut := docs.IDs(i), false
		all := docs.Targets(i, n)
		c.Longest = max(c.Longest, n)
		if most := context + 1; n > most {
			if tooLong == "refuse" {
				file, row := docs.Place(i)
				return nil, c, fmt.Errorf("document %d of %d (%s, row %d) has %d tokens, but the limit is %d for a context of %d; "+
					"raise model.context, or set data.too_long = \"cut\"", i+1, docs.Len(), data.Plain(file), row, n, most, context)
			}
			cut, n = true, most
		}
		kept := docs.Targets(i, n)
		c.Learned, c.TargetsLeftOut = c.Learned+kept, c.TargetsLeftOut+all-kept
		if kept == 0 {
			c.Dropped++
			continue
		}
		if cut {
			c.Cut++
		}
		c.Tokens += int64(n)
		r.Add(i, n)
	}
	if r.Len() == 0 {
		return nil, c, nothingToLearn(docs, c, context)
	}
	return r, c, nil
}

// nothingToLearn returns an error that names the document that needs the shortest context, or the first document.
func nothingToLearn(docs *data.Documents, c DocumentCounts, context int) error {
	shortest, at := 0, 0
	for i := range docs.Len() {
		if n := docs.FirstTarget(i); n > 0 && (shortest == 0 || n < shortest) {
			shortest, at = n, i
		}
	}
	where := func(i int) string {
		file, row := docs.Place(i)
		return fmt.Sprintf("%s, row %d", data.Plain(file), row)
	}
	switch {
	case docs.Len() == 0:
		return fmt.Errorf("%w: the files have no documents", data.ErrEmpty)
	case shortest > 0:
		return fmt.Errorf("%w: none of %s has a token to learn within the context of %d tokens; the first token to learn, in %s, needs a context of %d; raise the context, or shorten the prompts",
			data.ErrTooShort, words.Plural(c.Total, "document"), context, where(at), shortest)
	}
	return fmt.Errorf("%w: none of %s has a token to learn (the first is %s): the completion or the messages of the role \"assistant\" are empty, missing, or have weight 0", data.ErrTooShort, words.Plural(c.Total, "document"), where(0))
}
