package optest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/tensorops"
)

// badIDs are lists that fail while they run: an id or target in row 5 that the
// vocabulary of 9 does not have.
var badIDs = []struct {
	name   string
	record func(b *builder, ids tensorops.Tensor)
}{
	{"embed", func(b *builder, ids tensorops.Tensor) {
		b.Embed(b.garbage(8, 4), b.normal(9, 4), ids)
	}},
	{"embed_grad", func(b *builder, ids tensorops.Tensor) {
		b.EmbedGrad(b.normal(9, 4), b.normal(8, 4), ids)
	}},
	{"cross_entropy", func(b *builder, ids tensorops.Tensor) {
		b.CrossEntropy(b.garbage64(tensorops.LossStats), b.garbage64(8), b.normal(8, 9), ids, tensorops.CrossEntropyOpts{})
	}},
	{"cross_entropy with its gradient", func(b *builder, ids tensorops.Tensor) {
		b.CrossEntropy(b.garbage64(tensorops.LossStats), b.garbage64(8), b.normal(8, 9), ids,
			tensorops.CrossEntropyOpts{Grad: b.garbage(8, 9), Scale: 1})
	}},
	{"cross_entropy_part", func(b *builder, ids tensorops.Tensor) {
		b.CrossEntropyPart(b.garbage64(8, tensorops.LossParts), b.normal(8, 4), ids, tensorops.VocabSlice{First: 3, Vocab: 9})
	}},
}

func runErrors[S Subtests[S]](t S, dev tensorops.Device) {
	s := dev.NewStream("errors")
	defer s.Close()
	for _, c := range badIDs {
		for _, id := range []int32{9, -2, 1<<31 - 1, -1 << 31} {
			t.Run(fmt.Sprintf("%s/id %d", c.name, id), func(t S) {
				b := newBuilder(s, "bad id")
				c.record(b, b.ints([]int32{0, 8, 1, 2, 3, id, 4, 5}, 8))
				_, err := b.run(s)
				if !errors.Is(err, tensorops.ErrToken) {
					t.Fatalf("error %v, want ErrToken", err)
				}
				for _, part := range []string{"row 5", fmt.Sprint(id), "vocabulary has 9"} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("the message %q does not say %q", err, part)
					}
				}
			})
		}
	}
	t.Run("after a failed list", func(t S) {
		b := newBuilder(s, "after")
		b.Fill(b.garbage(5), 1)
		if _, err := b.run(s); err != nil {
			t.Error(err)
		}
	})
}
