package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/data/samples"
	"github.com/troupe-ml/troupe/tensorops"
)

// padding is the id after a row that is shorter than others of its microbatch.
const padding = 0

// words are the words of the source, with ids from 1 on.
var words = strings.Fields(`zero one two three four five six seven eight nine ten eleven twelve thirteen
	fourteen fifteen sixteen seventeen eighteen nineteen
	twenty thirty forty fifty sixty seventy eighty ninety hundred thousand`)

// The ids of the target: digit d has id d+1.
const (
	begin   = 11 // before the first digit
	end     = 12 // after the last one
	targets = 13
)

// numbers is the dataset: each sample is a number from 0 to 9999, in one to six words and in
// digits.
type numbers struct{}

func openNumbers(o samples.Options) (train, val samples.Dataset, err error) {
	if o.ValFraction == 0 {
		return numbers{}, nil, nil
	}
	return samples.Split(numbers{}, o.ValFraction, o.Seed)
}

// Fields returns fields whose length differs between samples.
func (numbers) Fields() []samples.Field {
	ids := func(name string, n int) samples.Field {
		return samples.Field{Name: name, DType: tensorops.Int32, Shape: []int{-1}, Classes: n}
	}
	return []samples.Field{ids("source", len(words)+1), ids("before", targets), ids("after", targets)}
}

func (numbers) Len() int { return 10_000 }

func (numbers) At(i int) (samples.Sample, error) {
	var source, digits []int32
	for _, w := range inWords(i) {
		source = append(source, int32(slices.Index(words, w)+1))
	}
	for _, d := range strconv.Itoa(i) {
		digits = append(digits, d-'0'+1)
	}
	ids := func(all ...int32) tensorops.Array { return tensorops.Array{Shape: []int{len(all)}, Int: all} }
	return samples.Sample{ids(source...), ids(append([]int32{begin}, digits...)...), ids(append(digits, end)...)}, nil
}

// inWords writes a number in words.
func inWords(n int) (said []string) {
	if n >= 1000 {
		said, n = append(said, words[n/1000], "thousand"), n%1000
	}
	if n >= 100 {
		said, n = append(said, words[n/100], "hundred"), n%100
	}
	if n >= 20 {
		said, n = append(said, words[n/10+18]), n%10
	}
	if n > 0 || len(said) == 0 {
		said = append(said, words[n])
	}
	return said
}

// Batch pads the rows of a microbatch to its longest row. Padding after a target does not count in
// the loss.
func (numbers) Batch(of []samples.Sample) (batch []tensorops.Array, _ error) {
	for field, fill := range []int32{padding, padding, tensorops.IgnoreTarget} {
		longest := 0
		for _, s := range of {
			longest = max(longest, s[field].Len())
		}
		a := tensorops.NewArray(tensorops.Int32, []int{len(of), longest})
		for i, s := range of {
			row := a.Int[i*longest:][:longest]
			for k := copy(row, s[field].Int); k < longest; k++ {
				row[k] = fill
			}
		}
		batch = append(batch, a)
	}
	return batch, nil
}
