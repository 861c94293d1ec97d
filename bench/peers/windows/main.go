// Command windows prints where a run's training windows start, for programs that train on the same ones:
//
//	windows SEED TOKENS CONTEXT COUNT
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/troupe-ml/troupe/internal/data"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	const names = 4
	if len(args) != names {
		return fmt.Errorf("windows: %d arguments; give SEED TOKENS CONTEXT COUNT", len(args))
	}
	var n [names]int64
	for i, arg := range args {
		var err error
		if n[i], err = strconv.ParseInt(arg, 10, 64); err != nil {
			return err
		}
	}
	epochs, err := data.NewEpochs(uint64(n[0]), n[1], int(n[2]))
	if err != nil {
		return err
	}
	for sequence := range n[3] {
		_, off := epochs.Window(sequence)
		fmt.Println(off)
	}
	return nil
}
