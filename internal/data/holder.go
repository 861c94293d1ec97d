package data

import (
	"fmt"
	"math"
)

// Holder makes Documents in memory, in as little as their ids need: so a reader of a large file holds Documents, which take many times as
// much, for a part of it only.
type Holder struct {
	held   *Documents
	ids    []byte
	number map[string]uint32 // of a file
}

// NewHolder holds documents whose ids are below vocab.
func NewHolder(vocab int) *Holder {
	h := stored{kind: storedDocuments, idBytes: idBytesFor(vocab)}
	return &Holder{held: &Documents{ids: &storedIDs{h: h, vocab: vocab}}, number: make(map[string]uint32)}
}

// Add appends copies of documents. After an error nothing can be added.
func (h *Holder) Add(docs []Document) error {
	held := h.held
	for i := range docs {
		d := &docs[i]
		if int64(len(d.IDs)) > math.MaxInt32 {
			return fmt.Errorf("%s, row %d: a document has %d ids, but the limit is %d", plain(d.File), d.Row, len(d.IDs), math.MaxInt32)
		}
		if _, ok := h.number[d.File]; !ok {
			h.number[d.File], held.files = uint32(len(held.files)), append(held.files, d.File)
		}
		at := held.ids.h.ids
		held.ids.h.ids += int64(len(d.IDs))
		held.list = append(held.list, documentAt{at, int32(len(d.IDs)), h.number[d.File], uint32(d.Row), d.Text, d.Talk, d.Good})
		for need := int((held.ids.h.ids + 7) / 8); len(held.learn) < need; {
			held.learn = append(held.learn, 0)
		}
		for k, id := range d.IDs {
			if id < 0 || int64(id) >= int64(held.ids.vocab) {
				return fmt.Errorf("%s, row %d: %w: encoding returned the id %d, but the vocabulary has %d ids", plain(d.File), d.Row, ErrVocab,
					id, held.ids.vocab)
			}
			if d.Learn[k] {
				held.learn.set(at + int64(k))
			}
		}
		h.ids = appendIDs(h.ids, d.IDs, held.ids.h.idBytes)
	}
	return nil
}

// Documents returns all that were added. Nothing can be added afterwards.
func (h *Holder) Documents() *Documents {
	h.held.ids.f = inMemoryFile(h.ids)
	return h.held
}

// HoldDocuments holds documents whose ids are below vocab.
func HoldDocuments(docs []Document, vocab int) (*Documents, error) {
	h := NewHolder(vocab)
	if err := h.Add(docs); err != nil {
		return nil, err
	}
	return h.Documents(), nil
}
