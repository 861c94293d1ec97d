package data

import "math/bits"

// Document is a separate text as token ids.
type Document struct {
	IDs   []int32
	Learn []bool // for each id: it is learned
	Text  bool   // all of it is learned, and it may be joined with others
	Talk  bool   // the chat template has rendered it
	Good  bool   // it is a good answer, for a loss that learns from single answers

	File string // its file and row. The number of the file is stored: the same text may be elsewhere
	Row  int
}

// Documents are documents whose ids are in a file, from which they are read when they are needed, or in memory. For each document,
// memory has a few numbers, and for each id a bit. They are safe for concurrent use.
type Documents struct {
	list  []documentAt
	files []string
	learn learnBits
	ids   *storedIDs
}

// documentAt is what memory has of a document.
type documentAt struct {
	at        int64 // its first id among those of all documents
	n         int32 // its ids
	file, row uint32
	text      bool
	talk      bool
	good      bool
}

// learnBits has a bit for each id: it is learned.
type learnBits []byte

func (l learnBits) at(i int64) bool { return l[i/8]>>(i%8)&1 != 0 }

func (l learnBits) set(i int64) { l[i/8] |= 1 << (i % 8) }

// count returns how many bits are set from one on to another.
func (l learnBits) count(from, to int64) (n int64) {
	for ; from < to && from%8 != 0; from++ {
		n += int64(l[from/8] >> (from % 8) & 1)
	}
	for ; from+8 <= to; from += 8 {
		n += int64(bits.OnesCount8(l[from/8]))
	}
	for ; from < to; from++ {
		n += int64(l[from/8] >> (from % 8) & 1)
	}
	return n
}

// Len returns the number of documents.
func (d *Documents) Len() int { return len(d.list) }

// IDs returns the number of ids of document i.
func (d *Documents) IDs(i int) int { return int(d.list[i].n) }

// Text reports whether document i is a text.
func (d *Documents) Text(i int) bool { return d.list[i].text }

// Talk reports whether the chat template has rendered document i.
func (d *Documents) Talk(i int) bool { return d.list[i].talk }

// Place returns the file and the row of document i.
func (d *Documents) Place(i int) (file string, row int) {
	return d.files[d.list[i].file], int(d.list[i].row)
}

// Targets returns how many of the first n ids of document i are learned. The first id is never one.
func (d *Documents) Targets(i, n int) int64 {
	if n < 2 {
		return 0
	}
	return d.learn.count(d.list[i].at+1, d.list[i].at+int64(n))
}

// FirstTarget returns the number of ids before the first one of document i that is learned; 0: none is.
func (d *Documents) FirstTarget(i int) int {
	of := d.list[i]
	for k := int64(1); k < int64(of.n); k++ {
		if d.learn.at(of.at + k) {
			return int(k)
		}
	}
	return 0
}

// Read reads document i.
func (d *Documents) Read(i int) (Document, error) {
	of := d.list[i]
	doc := Document{IDs: make([]int32, of.n), Learn: make([]bool, of.n), Text: of.text, Talk: of.talk, Good: of.good}
	doc.File, doc.Row = d.Place(i)
	for k := range doc.Learn {
		doc.Learn[k] = d.learn.at(of.at + int64(k))
	}
	return doc, d.ids.Read(doc.IDs, of.at)
}

// Part divides documents into those that are chosen and the others.
func (d *Documents) Part(chosen []bool) (others, those *Documents) {
	a, b := *d, *d
	a.list, b.list = nil, nil
	for i, of := range d.list {
		if chosen[i] {
			b.list = append(b.list, of)
		} else {
			a.list = append(a.list, of)
		}
	}
	return &a, &b
}

// Joined returns the ids of all documents as one corpus, and where in it each starts.
func (d *Documents) Joined() (Corpus, Bounds) {
	n, bounds, pieces := int64(0), make(Bounds, 0, len(d.list)), []Piece(nil)
	for _, of := range d.list {
		if of.n == 0 {
			continue
		}
		bounds, n = append(bounds, n), n+int64(of.n)
		if k := len(pieces) - 1; k >= 0 && pieces[k].Off+pieces[k].Len == of.at {
			pieces[k].Len += int64(of.n)
		} else {
			pieces = append(pieces, Piece{of.at, int64(of.n)})
		}
	}
	return joinedIDs{newPart(d.ids, pieces)}, bounds
}

// joinedIDs are one text, unlike a part, whose pieces are texts of their own.
type joinedIDs struct{ *part }

// Close closes the file, if there is one.
func (d *Documents) Close() error { return d.ids.Close() }
