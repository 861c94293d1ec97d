package count

import "unsafe"

// Arguments of optim.cu, and the entries of its tables.
type (
	squaresArgs struct {
		Partial, Entries uint64
		Count, Blocks    int64
	}
	normEntry struct {
		Out, X        uint64
		N, First      int64
		Aligned, Half uint32
	}
	adamWArgs struct {
		Entries      uint64
		Count        int64
		Beta1, Rest1 float32
		Beta2, Rest2 float32
		Rate         float32
		Root         float32
		Eps          float32
		Scale        float32
		Clear, Pad   int32
	}
	adamWEntry struct {
		W, M, V, G, Copy uint64
		N, First         int64
		Keep             float32
		Aligned          uint32
	}
)

// table is the operand that a table is.
func table[E any](at uint64, n int64) Operand {
	o := array(at, n, int64(unsafe.Sizeof(*new(E))))
	o.Use = Some // some entries have no blocks, and not all fields are read
	return o
}

// byTable is a line of a kernel that goes by a table.
func byTable[A, E any](at func(a *A) (uint64, int64), of func(a *A, all []E, c *Cost)) costOf {
	return func(e *Event) (Cost, error) {
		c := Cost{Group: Optimizer}
		a, err := argument[A](e)
		if err != nil {
			return c, err
		}
		where, n := at(a)
		all, err := entries[E](e, where, n)
		if err != nil {
			return c, err
		}
		c.reads(table[E](where, n))
		of(a, all, &c)
		return c, nil
	}
}

func squaresTable(a *squaresArgs) (uint64, int64) { return a.Entries, a.Count }

var optimKernels = map[string]costOf{
	"squares": byTable(squaresTable, func(a *squaresArgs, all []normEntry, c *Cost) {
		c.writes(array(a.Partial, a.Blocks, 8))
		for _, x := range all {
			c.reads(either(x.X, x.N, x.Half, 0))
		}
	}),
	"add_squares": byTable(squaresTable, func(a *squaresArgs, all []normEntry, c *Cost) {
		c.reads(array(a.Partial, a.Blocks, 8))
		for _, x := range all {
			c.writes(array(x.Out, 1, 8))
		}
	}),
	"adamw": byTable(func(a *adamWArgs) (uint64, int64) { return a.Entries, a.Count }, func(a *adamWArgs, all []adamWEntry, c *Cost) {
		for _, x := range all {
			w, m, v, g := array(x.W, x.N, 4), array(x.M, x.N, 4), array(x.V, x.N, 4), array(x.G, x.N, 4)
			c.reads(w, m, v, g)
			c.writes(w, m, v, array(x.Copy, x.N, 2))
			if a.Clear != 0 {
				c.writes(g)
			}
		}
	}),
	"sgd": line(Optimizer, func(a *struct {
		W, M, G, Copy                uint64
		N                            int64
		Rate, Momentum, Decay, Scale float32
		Aligned, Pad                 uint32
	}, _ *Event, c *Cost) {
		w, m := array(a.W, a.N, 4), array(a.M, a.N, 4)
		c.reads(w, m, array(a.G, a.N, 4))
		c.writes(w, m, array(a.Copy, a.N, 2))
	}),
}
