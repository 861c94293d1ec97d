package event

// Documents describe training on documents one by one, of which only a part is learned.
type Documents struct {
	Train        int     `json:"train"` // documents to train on
	Val          int     `json:"val"`   // documents to validate on
	TrainLearned int64   `json:"train_learned"`
	ValLearned   int64   `json:"val_learned"`        // tokens that are learned; Info has all tokens
	Context      int     `json:"context"`            // the most tokens that a document has in front of its last one
	Longest      int     `json:"longest"`            // tokens of the longest document, before it is cut
	Cut          int     `json:"cut"`                // documents of which only the beginning is used
	Dropped      int     `json:"dropped"`            // documents of which no token to learn fits
	Template     string  `json:"template,omitempty"` // the origin of the chat template; "": the first document needs none
	File         string  `json:"file"`               // where the example is
	Row          int     `json:"row"`
	Example      []Piece `json:"example"` // the beginning of a document to train on
}

// Piece is a part of a document.
type Piece struct {
	Text    string `json:"text"`
	Learned bool   `json:"learned"`
}

// Packing describes sequences of several documents each (data.packing).
type Packing struct {
	Mode      string  `json:"mode"`
	Sequences int64   `json:"sequences"` // of an epoch
	Documents float64 `json:"documents"` // of a sequence, on average
	FullPct   float64 `json:"full_pct"`  // share of the context that a sequence fills, on average
	Targets   float64 `json:"targets"`   // of a step, on average
}
