package samples_test

import (
	"fmt"
	"log"

	"github.com/troupe-ml/troupe/data/samples"
	"github.com/troupe-ml/troupe/tensorops"
)

// xor is a dataset of a program's own: two bits, and whether one of them is set.
type xor struct{}

func (xor) Fields() []samples.Field {
	return []samples.Field{
		{Name: "x", DType: tensorops.Float32, Shape: []int{2}},
		{Name: "y", DType: tensorops.Int32, Classes: 2},
	}
}

func (xor) Len() int { return 4 }

func (xor) At(i int) (samples.Sample, error) {
	a, b := i&1, i>>1
	return samples.Sample{
		{Shape: []int{2}, Float: []float32{float32(a), float32(b)}},
		{Int: []int32{int32(a ^ b)}},
	}, nil
}

// A run reads its samples by their numbers, and stacks some for a microbatch.
func ExampleNewSource() {
	source, err := samples.NewSource(xor{}, 1)
	if err != nil {
		log.Fatal(err)
	}
	var microbatch []samples.Sample
	for number := range int64(4) { // an epoch: each sample once
		s, err := source.Sample(number)
		if err != nil {
			log.Fatal(err)
		}
		microbatch = append(microbatch, s)
	}
	batch, err := samples.Batch(xor{}, microbatch)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(batch[0].Shape, batch[0].Float)
	fmt.Println(batch[1].Shape, batch[1].Int)
	// Output:
	// [4 2] [1 0 0 0 0 1 1 1]
	// [4] [1 0 1 0]
}

// Files of CSV, whose first row names the columns.
func ExampleOpenRun() {
	d, err := samples.OpenRun(samples.Options{
		Format: "csv",
		Files:  []string{"../../examples/digits/digits-train.csv"},
		Val:    []string{"../../examples/digits/digits-test.csv"},
		Header: true,
		Label:  "label",
		Scale:  1.0 / 16,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Train.Len(), d.Val.Len(), d.Train.Fields())
	// Output: 1437 360 ["x" of float32 [64] "y" of int32 [], 10 classes]
}
