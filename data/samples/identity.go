package samples

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/troupe-ml/troupe/internal/data"
)

// Identifier is a dataset that knows its Identity without reading its samples.
type Identifier interface{ Identity() data.Identity }

// Identity tells whether a dataset still has the same samples, whatever the names and format of its
// files. An Identifier provides it itself. Otherwise it is computed from the fields, the number of
// samples, and all samples. If the samples take more than limitIdentityBytes, estimated from the
// first one, it uses limitIdentitySamples of them.
func Identity(d Dataset) (data.Identity, error) {
	if own, ok := d.(Identifier); ok {
		return own.Identity(), nil
	}
	return identityUpTo(d, limitIdentityBytes, limitIdentitySamples)
}

func identityUpTo(d Dataset, wholeBytes int64, samplesMax int) (data.Identity, error) {
	n, fields := d.Len(), d.Fields()
	id := data.Identity{Samples: int64(n)}
	h := sha256.New()
	numbers(h, n, len(fields))
	for _, f := range fields {
		numbers(h, int(f.DType), f.Classes, len(f.Name))
		h.Write([]byte(f.Name))
	}
	read := n
	for k := 0; k < read; k++ {
		// Not k·n/read, which may overflow.
		i := n/read*k + n%read*k/read
		s, err := At(d, i)
		if err != nil {
			return data.Identity{}, fmt.Errorf("identity of the data: %w", err)
		}
		sampleBytes := hashSample(h, s)
		if id.Bytes += sampleBytes; k == 0 && n > samplesMax && sampleBytes > wholeBytes/int64(n) {
			read, id.Sampled = samplesMax, true
		}
	}
	id.SHA256 = hex.EncodeToString(h.Sum(nil))
	return id, nil
}

// hashSample adds a sample's shapes and numbers to a hash. It hashes the numbers' memory, which is
// little-endian wherever Troupe runs. It returns the number of bytes.
func hashSample(h hash.Hash, s Sample) (sampleBytes int64) {
	for _, a := range s {
		numbers(h, len(a.Shape))
		numbers(h, a.Shape...)
		h.Write(a.Bytes())
		sampleBytes += int64(len(a.Bytes()))
	}
	return sampleBytes
}

func numbers(h hash.Hash, all ...int) {
	for _, n := range all {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
	}
}
