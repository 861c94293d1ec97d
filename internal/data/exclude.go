package data

import (
	"fmt"
	"os"
)

// Exclude divides files into those that are not among others and those that are, under whatever
// name: a link to a file is that file.
func Exclude(files, others []string) (rest, both []string, err error) {
	infos := make([]os.FileInfo, len(others))
	for i, name := range others {
		if infos[i], err = os.Stat(name); err != nil {
			return nil, nil, fmt.Errorf("data file: %w", err)
		}
	}
	// Files of another size are others: that spares most comparisons.
	bySize := make(map[int64][]os.FileInfo)
	for _, info := range infos {
		bySize[info.Size()] = append(bySize[info.Size()], info)
	}
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			return nil, nil, fmt.Errorf("data file: %w", err)
		}
		same := false
		for _, other := range bySize[info.Size()] {
			same = same || os.SameFile(info, other)
		}
		if same {
			both = append(both, name)
		} else {
			rest = append(rest, name)
		}
	}
	return rest, both, nil
}
