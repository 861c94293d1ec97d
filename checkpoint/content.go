package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/troupe-ml/troupe/internal/safetensors"
)

// Content is the content of a checkpoint to write.
type Content struct {
	Step      int
	Model     []safetensors.Tensor
	Optimizer []safetensors.Tensor // may be empty
	// Part says that Model has only some tensors of a model. They get a file whose name no program takes for that of a whole
	// model.
	Part bool
	// Files holds the other files by name: config.json, trainer.json, config.toml, tokenizer.json,
	// … They are written unchanged beside the tensors.
	Files map[string][]byte
	// MaxShardBytes is the size above which the model is split into several files; 0 means
	// defaultShardBytes. A single larger tensor has its own file.
	MaxShardBytes int64
	// Others write the tensors that are Absent; nil: there are none.
	Others *Others
}

// plannedFile is a file whose size is known before it is written.
type plannedFile struct {
	name  string
	bytes int64
	write func(io.Writer) error
	// tensors are the file's contents; nil: it is not a file of tensors.
	tensors *safetensors.Prepared
}

// plan lays out all files except the manifest, in the order of writing, and checks everything that
// can be checked before the first write.
func (c Content) plan() ([]plannedFile, error) {
	if c.Step < 0 {
		return nil, fmt.Errorf("a checkpoint cannot have the step %d", c.Step)
	}
	if c.MaxShardBytes < 0 {
		return nil, fmt.Errorf("MaxShardBytes is %d: it must be 0 or more", c.MaxShardBytes)
	}
	if c.Others != nil {
		if err := checkName(c.Others.Tag); err != nil {
			return nil, err
		}
	}
	files, err := c.planModel()
	if err != nil {
		return nil, err
	}
	if len(c.Optimizer) > 0 {
		f, err := planTensors(optimizerName, c.Optimizer)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		if err := checkName(name); err != nil {
			return nil, err
		}
		if isReserved(name) {
			return nil, fmt.Errorf("the file name %q is reserved for the checkpoint", name)
		}
		if len(c.Files[name]) > FileBytesMax {
			return nil, fmt.Errorf("%s has %d bytes; the limit is %d", name, len(c.Files[name]), FileBytesMax)
		}
		files = append(files, planBytes(name, c.Files[name]))
	}
	if len(files) > FilesMax {
		return nil, fmt.Errorf("the checkpoint has %d files; the limit is %d", len(files), FilesMax)
	}
	return files, nil
}

// planModel plans the model's file, or its shards and their index.
func (c Content) planModel() ([]plannedFile, error) {
	if c.Part {
		f, err := planTensors(partName, c.Model)
		return []plannedFile{f}, err
	}
	shards, err := c.shards()
	if err != nil {
		return nil, err
	}
	if len(shards) == 1 {
		f, err := planTensors(modelName, shards[0])
		return []plannedFile{f}, err
	}
	if len(shards) > ShardsMax {
		return nil, fmt.Errorf("the model has %d shards, but the limit is %d: raise MaxShardBytes, %d", len(shards), ShardsMax, c.MaxShardBytes)
	}
	var files []plannedFile
	shardOf := make(map[string]string)
	var total int64
	for i, shard := range shards {
		name := shardName(i, len(shards))
		f, err := planTensors(name, shard)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
		for _, t := range shard {
			if other, twice := shardOf[t.Name]; twice {
				return nil, fmt.Errorf("the tensor %q occurs twice, in %s and %s", t.Name, other, name)
			}
			shardOf[t.Name] = name
			size, err := t.Size()
			if err != nil {
				return nil, err
			}
			total += size
		}
	}
	index, err := encodeIndex(shardOf, total)
	if err != nil {
		return nil, err
	}
	if len(index) > indexBytesMax {
		return nil, fmt.Errorf("%s has %d bytes; the limit is %d", indexName, len(index), indexBytesMax)
	}
	return append(files, planBytes(indexName, index)), nil
}

// shards splits the model's tensors in order, each shard as large as allowed.
func (c Content) shards() ([][]safetensors.Tensor, error) {
	limit := c.MaxShardBytes
	if limit == 0 {
		limit = defaultShardBytes
	}
	var shards [][]safetensors.Tensor
	begin, used := 0, int64(0)
	for i, t := range c.Model {
		size, err := t.Size()
		if err != nil {
			return nil, err
		}
		if i > begin && size > limit-used {
			shards = append(shards, c.Model[begin:i])
			begin, used = i, 0
		}
		used += size
	}
	return append(shards, c.Model[begin:]), nil
}

func planTensors(name string, tensors []safetensors.Tensor) (plannedFile, error) {
	// Readers of Hugging Face folders require this metadata.
	prepared, err := safetensors.Prepare(map[string]string{"format": "pt"}, tensors)
	if err != nil {
		return plannedFile{}, fmt.Errorf("%s: %w", name, err)
	}
	return plannedFile{name: name, bytes: prepared.Size(), tensors: prepared, write: func(w io.Writer) error {
		_, err := prepared.WriteTo(w)
		return err
	}}, nil
}

func planBytes(name string, data []byte) plannedFile {
	return plannedFile{name: name, bytes: int64(len(data)), write: func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}}
}

// encodeJSON encodes every JSON file that the package writes.
func encodeJSON(v any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}
