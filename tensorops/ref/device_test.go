package ref_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// TestPanicIsAnError: a tensor that was not made by a list of this device has
// too little memory for float64, which an operation finds out by panicking.
func TestPanicIsAnError(t *testing.T) {
	p := newTape(t)
	small, err := tensorops.NewTensor(p.stream.Arena(), tensorops.Float32, 50, 20)
	if err != nil {
		t.Fatal(err)
	}
	l := p.stream.NewList()
	l.GELU(small, small)
	err = tensorops.Run(p.stream, l)
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"gradient: ", "operation 0", "gelu y=float32[50 20] x=float32[50 20]", "panic"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the message %q does not say %q", err, part)
		}
	}
	small.Release()
	p.normal(3) // the stream lives on
}

func TestUnknownOperation(t *testing.T) {
	p := newTape(t)
	l := p.stream.NewList()
	l.Spin(0)
	l.Ops()[0].Kind = tensorops.KindNone
	if err := tensorops.Run(p.stream, l); !errors.Is(err, tensorops.ErrUnsupported) {
		t.Errorf("error %v, want ErrUnsupported", err)
	}
}

func TestClosedDevice(t *testing.T) {
	dev := ref.New()
	s := dev.NewStream("before")
	l := s.NewList()
	dev.Close()
	dev.Close()
	if err := tensorops.Run(s, l); !errors.Is(err, tensorops.ErrClosed) {
		t.Errorf("a stream of the closed device: error %v, want ErrClosed", err)
	}
	s = dev.NewStream("after")
	if err := tensorops.Run(s, s.NewList()); !errors.Is(err, tensorops.ErrClosed) {
		t.Errorf("a new stream of the closed device: error %v, want ErrClosed", err)
	}
}

func TestValues(t *testing.T) {
	p := newTape(t)
	x := p.of([]float64{1, 2, 3, 4, 5, 6}, 3, 2)
	ref.Values(x)[5] = 7 // the view is live
	p.want(x.RowRange(1, 3), 3, 4, 5, 7)
	for name, misuse := range map[string]func(){
		"token ids":              func() { ref.Values(p.ids(1, 2)) },
		"columns":                func() { ref.Values(x.Columns(0, 1)) },
		"another number of them": func() { ref.Set(x, []float64{1}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse()
		})
	}
}
