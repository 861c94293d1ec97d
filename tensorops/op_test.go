package tensorops_test

import (
	"errors"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

func TestNames(t *testing.T) {
	names := make(map[string]bool)
	for _, kind := range tensorops.Kinds() {
		name := kind.String()
		if name == "" || name == "none" || names[name] {
			t.Errorf("kind %d is named %q", kind, name)
		}
		names[name] = true
	}
	if got := tensorops.Kind(200).String(); got != "kind(200)" {
		t.Errorf("an unknown kind is %q", got)
	}
	if got := tensorops.DType(200).String(); got != "dtype(200)" {
		t.Errorf("an unknown type is %q", got)
	}
	for dtype, size := range map[tensorops.DType]int{tensorops.Float32: 4, tensorops.Float64: 8, tensorops.Int32: 4} {
		if dtype.Size() != size {
			t.Errorf("%v has %d bytes", dtype, dtype.Size())
		}
	}
}

func TestOpString(t *testing.T) {
	l := newList()
	x := l.Alloc(tensorops.Float32, 4, 6)
	l.RoPE(x, tensorops.RoPEOpts{Heads: 3, Period: 4, First: 1, Rotation: tensorops.NewRotation([]float64{1}, 1.5)})
	l.Fetch(make([]byte, 96), x)
	l.Dropout(x, x, tensorops.Tensor{}, tensorops.Mask{P: 0.25})
	want := []string{
		"rope x=float32[4 6] starts=none sizes=[3 4 1 0 0 0 0 0] rotation=1 pairs, scale 1.5",
		"fetch src=float32[4 6] host=96 bytes",
		"dropout y=float32[4 6] x=float32[4 6] skip=none numbers=[0.25 0 0 0 0 0 0 0]",
	}
	if l.Err() != nil || len(l.Ops()) != len(want) {
		t.Fatalf("%d operations, error %v", len(l.Ops()), l.Err())
	}
	for i, w := range want {
		if got := l.Ops()[i].String(); got != w {
			t.Errorf("got  %s\nwant %s", got, w)
		}
	}
}

func TestSolo(t *testing.T) {
	var g tensorops.Solo
	if g.Size() != 1 || g.Rank() != 0 {
		t.Errorf("rank %d of %d", g.Rank(), g.Size())
	}
	for _, test := range []struct {
		kind tensorops.Kind
		want error
	}{
		{tensorops.KindCollective, nil},
		{tensorops.KindFill, tensorops.ErrUnsupported},
	} {
		calls := 0
		op := &tensorops.Op{Kind: test.kind}
		if test.kind == tensorops.KindCollective {
			tensorops.CollectiveArgs{What: tensorops.Barrier, Group: g}.Put(op)
		}
		g.Start(op, func(err error) {
			calls++
			if !errors.Is(err, test.want) {
				t.Errorf("%v: error %v", test.kind, err)
			}
		})
		if calls != 1 {
			t.Errorf("%v: done was called %d times", test.kind, calls)
		}
	}
}
