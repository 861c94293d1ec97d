//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// lookups records what a language model's step does with ids: those of tokens, and targets of which one is ignored.
type lookups struct {
	tokens, targets           tensorops.Tensor
	weight, x, logits, grad   tensorops.Tensor
	stats, lse                tensorops.Tensor
	rows, vocabulary, columns int
}

func newLookups(l *tensorops.List) *lookups {
	u := &lookups{rows: 6, vocabulary: 10, columns: 8}
	u.tokens, u.targets = l.Alloc(tensorops.Int32, u.rows), l.Alloc(tensorops.Int32, u.rows)
	u.weight, u.grad = l.Alloc(tensorops.Float32, u.vocabulary, u.columns), l.Alloc(tensorops.Float32, u.vocabulary, u.columns)
	u.x, u.logits = l.Alloc(tensorops.Float32, u.rows, u.columns), l.Alloc(tensorops.Float32, u.rows, u.vocabulary)
	u.stats, u.lse = l.Alloc(tensorops.Float64, 1, tensorops.LossStats), l.Alloc(tensorops.Float64, u.rows, 1)
	l.Fill(u.weight, 1)
	l.Fill(u.grad, 0)
	return u
}

func (u *lookups) upload(l *tensorops.List, tokens, targets []int32) {
	l.Upload(u.tokens, tensorops.HostBytes(tokens))
	l.Upload(u.targets, tensorops.HostBytes(targets))
}

func (u *lookups) forward(l *tensorops.List) {
	l.Embed(u.x, u.weight, u.tokens)
	l.MatMul(u.logits, u.x, u.weight, tensorops.MatMulOpts{TransB: true})
	half := u.rows / 2
	for first := 0; first < u.rows; first += half { // as the head does
		l.CrossEntropy(u.stats, u.lse.RowRange(first, first+half), u.logits.RowRange(first, first+half),
			u.targets.View(u.rows, 1).RowRange(first, first+half), tensorops.CrossEntropyOpts{})
	}
}

func (u *lookups) backward(l *tensorops.List) { l.EmbedGrad(u.grad, u.x, u.tokens) }

var (
	goodTokens  = []int32{0, 9, 3, 3, 1, 0}
	goodTargets = []int32{9, tensorops.IgnoreTarget, 3, 1, 0, 2}
)

// TestCheckedIDs: a list whose ids the host has looked at is one batch, and so is a later one that uses them; a bad
// id is found all the same, with the same words as where the kernels look.
func TestCheckedIDs(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{})
	s := d.NewStream("ids")
	defer s.Close()
	list := s.NewList()
	u := newLookups(list)
	batches := func(record func(list *tensorops.List)) (int64, error) {
		before := l.Calls("cuEventRecord")
		record(list)
		err := tensorops.Run(s, list)
		list = s.NewList()
		return l.Calls("cuEventRecord") - before, err
	}
	for _, test := range []struct {
		what    string
		record  func(list *tensorops.List)
		batches int64
		err     string
	}{
		{"forward", func(list *tensorops.List) { u.upload(list, goodTokens, goodTargets); u.forward(list) }, 1, ""},
		{"backward", u.backward, 1, ""},
		{"ids that were overwritten", func(list *tensorops.List) {
			list.Copy(u.tokens, u.targets)
			u.backward(list)
		}, 1, "row 1 holds token -1, but the vocabulary has 10 tokens"},
		{"a bad token", func(list *tensorops.List) {
			u.upload(list, []int32{0, 1, 2, 10, 4, 5}, goodTargets)
			u.forward(list)
		}, 1, "row 3 holds token 10, but the vocabulary has 10 tokens"},
		{"a bad target", func(list *tensorops.List) {
			u.upload(list, goodTokens, []int32{0, 0, 0, 0, -2, 0})
			u.forward(list)
		}, 2, "row 1 holds token -2, but the vocabulary has 10 tokens"}, // of the rows looked up together
		{"good ones again", func(list *tensorops.List) { u.upload(list, goodTokens, goodTargets); u.forward(list); u.backward(list) }, 1, ""},
	} {
		n, err := batches(test.record)
		switch {
		case test.err == "" && err != nil, test.err != "" && (!errors.Is(err, tensorops.ErrToken) || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%s: %v, want %q", test.what, err, test.err)
		case n != test.batches:
			t.Errorf("%s: %d batches, want %d", test.what, n, test.batches)
		}
	}
	// What the kernels look at themselves.
	s.(*stream).ids = checkedIDs{}
	if n, err := batches(u.backward); n != 1 || err != nil {
		t.Errorf("ids that are not known: %d batches, %v", n, err)
	}
	if n, err := batches(u.forward); n != 3 || err != nil {
		t.Errorf("ids that are not known: %d batches, %v", n, err)
	}
	list.Free(u.tokens)
	if err := tensorops.Run(s, list); err != nil {
		t.Fatal(err)
	}
}

// TestCheckedIDsRoom: a stream remembers so many tensors of ids, and those apart.
func TestCheckedIDsRoom(t *testing.T) {
	var c checkedIDs
	arena := tensorops.NewHostMemory(0).NewArena("test")
	defer arena.Close()
	for i := range 2*limitCheckedIDs + 3 {
		tensor, err := tensorops.NewTensor(arena, tensorops.Int32, 4)
		if err != nil {
			t.Fatal(err)
		}
		tensor.Buffer().Addr = uint64(4096 - 16*(i%200))
		if i >= 200 {
			tensor.Buffer().Addr += uint64(i) << 20
		}
		c.uploaded(tensor, tensorops.HostBytes([]int32{1, 2, 3, int32(i)}))
	}
	if len(c.all) != limitCheckedIDs || !slices.IsSortedFunc(c.all, func(a,
		b knownPart[idRange]) int {
		return int(int64(a.first) - int64(b.first))
	}) {
		t.Errorf("%d are known, sorted or not", len(c.all))
	}
	for i := range c.all[1:] {
		if c.all[i].meets(c.all[i+1].extent) {
			t.Errorf("%v and %v have memory in common", c.all[i], c.all[i+1])
		}
	}
}
