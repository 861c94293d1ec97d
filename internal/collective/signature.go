package collective

import (
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/troupe-ml/troupe/tensorops"
)

// Signature describes a collective, with its shapes. All members of a group must start collectives
// with equal signatures; compare them with ==.
type Signature struct {
	what  tensorops.Collective
	how   tensorops.Reduction
	dtype tensorops.DType
	rank  int8
	dims  [tensorops.MaxRank]int32 // of the source
	dim   int32
	root  int32
}

// SignatureOf is that of a collective.
func SignatureOf(a tensorops.CollectiveArgs) Signature {
	s := Signature{what: a.What}
	if a.What == tensorops.Barrier {
		return s
	}
	s.dtype, s.rank = a.Src.DType(), int8(a.Src.Rank())
	for i := range a.Src.Rank() {
		s.dims[i] = int32(a.Src.Dim(i))
	}
	switch a.What {
	case tensorops.AllReduce:
		s.how = a.How
	case tensorops.ReduceScatter:
		s.how, s.dim = a.How, int32(a.Dim)
	case tensorops.AllGather:
		s.dim = int32(a.Dim)
	case tensorops.Broadcast:
		s.root = int32(a.Root)
	case tensorops.AllToAllV: // the members' rows differ in number
		s.rank, s.dims = 1, [tensorops.MaxRank]int32{s.dims[1]}
		s.dim = int32(a.Table.Cols() - 1)
		if a.Back {
			s.how = 1
		}
	}
	return s
}

// ofTable returns the signature of an AllToAllV with the numbers of its table: members with different tables would exchange
// different rows.
func (s Signature) ofTable(table []byte) Signature {
	s.root = int32(crc32.ChecksumIEEE(table) &^ (1 << 31))
	return s
}

func (s Signature) String() string {
	var b strings.Builder
	b.WriteString(s.what.String())
	if s.what == tensorops.Barrier {
		return b.String()
	}
	if s.what == tensorops.AllReduce || s.what == tensorops.ReduceScatter {
		fmt.Fprintf(&b, " %v", s.how)
	}
	fmt.Fprintf(&b, " %v%v", s.dtype, s.dims[:s.rank])
	switch s.what {
	case tensorops.ReduceScatter, tensorops.AllGather:
		fmt.Fprintf(&b, " along dimension %d", s.dim)
	case tensorops.Broadcast:
		fmt.Fprintf(&b, " from rank %d", s.root)
	case tensorops.AllToAllV:
		where := "to"
		if s.how != 0 {
			where = "back from"
		}
		fmt.Fprintf(&b, " %s %d experts", where, s.dim)
		if s.root != 0 {
			fmt.Fprintf(&b, " by table %08x", s.root)
		}
	}
	return b.String()
}
