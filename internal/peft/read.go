package peft

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/stages"
)

// The files of a directory.
const (
	ConfigFile  = "adapter_config.json"
	WeightsFile = "adapter_model.safetensors"
	pickleFile  = "adapter_model.bin"
)

// The names of tensors: prefix, module, and one of the ends.
const (
	prefix       = "base_model.model."
	endA         = stages.AdapterA
	endB         = stages.AdapterB
	endMagnitude = stages.AdapterMagnitude
	endWeight    = ".weight"
	endBias      = ".bias"
)

var (
	// ErrNotAdapter: a folder has no adapter of PEFT.
	ErrNotAdapter = errors.New("not a directory of a PEFT adapter")
	// ErrAdapter: the files of an adapter contradict themselves, or have something that Troupe does not support.
	ErrAdapter = errors.New("the adapter cannot be used")
	// ErrBase: the adapter does not belong to the model.
	ErrBase = errors.New("the adapter does not fit this model")
)

// Directory is an open directory. Its tensors are mapped into memory until Close.
type Directory struct {
	path     string
	settings *settings
	file     *safetensors.File
	modules  []*module // with an adapter, in the order of the file
	byName   map[string]*module
	saved    []string // names of tensors of modules that are saved whole, without the prefix
}

// module is a linear layer with an adapter, or a parameter of experts.
type module struct {
	name          string
	a, b, m       string // its tensors; "": none
	rank, in, out int    // of the tensors; the rank of a parameter is that of all experts together
	alpha         float64
	parameter     string // of experts, with its module; "": it is a linear layer
	each          int    // rank of each expert
}

// Read opens a directory and checks its files, without a model. The error is ErrNotAdapter or ErrAdapter, or one of the file system.
func Read(path string) (d *Directory, err error) {
	f, err := folder.Open(path)
	if err != nil {
		return nil, folder.Missing(folder.Unreadable(err), "", "folder", path)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := folder.ReadFile(f, ConfigFile, MaxConfigBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: it has no %s", path, ErrNotAdapter, ConfigFile)
	}
	if err != nil {
		return nil, err
	}
	d = &Directory{path: path, byName: make(map[string]*module)}
	if d.settings, err = parse(text); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrAdapter, f.Path(ConfigFile), err)
	}
	if d.file, err = openWeights(f, path); err != nil {
		return nil, err
	}
	if err := d.scan(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", ErrAdapter, d.file.Path(), err), d.Close())
	}
	return d, nil
}

func openWeights(f *folder.Folder, path string) (*safetensors.File, error) {
	weights, err := f.Open(WeightsFile)
	if errors.Is(err, fs.ErrNotExist) {
		if old, err := f.Open(pickleFile); err == nil {
			return nil, errors.Join(fmt.Errorf("%s: %w: %s is in Python's pickle format; save the adapter as %s", path, ErrAdapter,
				pickleFile,
				WeightsFile), old.Close())
		}
		return nil, fmt.Errorf("%s: %w: it has no %s", path, ErrNotAdapter, WeightsFile)
	}
	if err != nil {
		return nil, folder.Unreadable(err)
	}
	file, err := safetensors.FromFile(weights)
	if err := errors.Join(err, weights.Close()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAdapter, err)
	}
	return file, nil
}

// Close unmaps the tensors.
func (d *Directory) Close() error { return d.file.Close() }

// Path returns the path of the directory.
func (d *Directory) Path() string { return d.path }

// Base returns base_model_name_or_path, which may be empty.
func (d *Directory) Base() string { return d.settings.base }

// Metadata returns the free-form metadata of the file of tensors.
func (d *Directory) Metadata() map[string]string { return d.file.Metadata() }

// scan lists the modules of the file and compares them with the settings.
func (d *Directory) scan() error {
	for _, name := range d.file.Names() {
		if err := d.add(name); err != nil {
			return fmt.Errorf("tensor %s: %w", strictjson.Quote(name), err)
		}
	}
	for _, m := range d.modules {
		if err := d.check(m); err != nil {
			return fmt.Errorf("module %s: %w", strictjson.Quote(m.name), err)
		}
	}
	for _, name := range d.settings.save {
		if !slices.ContainsFunc(d.saved, func(saved string) bool { return saves(name, saved) }) {
			return fmt.Errorf("modules_to_save in %s has %s, but the file has no tensor of it", ConfigFile, strictjson.Quote(name))
		}
	}
	if len(d.modules) == 0 {
		return fmt.Errorf("it has no tensors that end with %s", endA)
	}
	return nil
}

// add notes a tensor.
func (d *Directory) add(name string) error {
	info, _ := d.file.Info(name)
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return fmt.Errorf("its name does not start with %s", prefix)
	}
	if !slices.Contains([]string{"F32", "F16", "BF16"}, info.DType) {
		return fmt.Errorf("it has type %s; only F32, F16 and BF16 are supported", info.DType)
	}
	for _, end := range []string{endA, endB, endMagnitude} {
		of, ok := strings.CutSuffix(rest, end)
		if !ok {
			continue
		}
		if of == "" {
			return errors.New("it names no module")
		}
		m := d.byName[of]
		if m == nil {
			m = &module{name: of}
			d.byName[of] = m
			d.modules = append(d.modules, m)
		}
		switch end {
		case endA:
			m.a = name
		case endB:
			m.b = name
		default:
			m.m = name
		}
		return nil
	}
	switch of, isWeight := strings.CutSuffix(rest, endWeight); {
	case strings.Contains(rest, "lora_embedding_"):
		return errors.New("adapters of embeddings are not supported")
	case strings.Contains(rest, "lora_"):
		return fmt.Errorf("only names that end with %s, %s or %s are known", endA, endB, endMagnitude)
	case !isWeight && !strings.HasSuffix(rest, endBias):
		return errors.New("this name is unknown")
	case ownName(rest) == headWeight && d.settings.tied: // PEFT stores a tied head, too
	case !slices.ContainsFunc(d.settings.save, func(one string) bool { return saves(one, rest) }):
		return fmt.Errorf("modules_to_save in %s does not name %s", ConfigFile, strictjson.Quote(of))
	}
	d.saved = append(d.saved, rest)
	return nil
}

// saves reports whether a name of modules_to_save selects the module of a tensor or one around it, as PEFT does: by the end of its name.
func saves(name, tensor string) bool {
	for module := moduleOf(tensor); module != ""; module = module[:max(strings.LastIndexByte(module, '.'), 0)] {
		if strings.HasSuffix(module, name) {
			return true
		}
	}
	return false
}

// check checks a module's tensors against the settings.
func (d *Directory) check(m *module) error {
	if own, param := d.settings.parameterOf(m.name); param != "" {
		m.parameter = own + "." + param
	}
	switch {
	case m.a == "" && m.b == "":
		return fmt.Errorf("%s and %s are missing", endA[1:], endB[1:])
	case m.a == "":
		return fmt.Errorf("%s is missing", endA[1:])
	case m.b == "":
		return fmt.Errorf("%s is missing", endB[1:])
	case d.settings.dora && m.m == "":
		return fmt.Errorf("%s is missing, but %s has use_dora = true", endMagnitude[1:], ConfigFile)
	case !d.settings.dora && m.m != "":
		return fmt.Errorf("it has %s, but %s does not have use_dora = true", endMagnitude[1:], ConfigFile)
	case m.parameter == "" && !d.settings.targeted(m.name):
		return fmt.Errorf("target_modules in %s does not select it", ConfigFile)
	}
	a, _ := d.file.Info(m.a)
	b, _ := d.file.Info(m.b)
	if len(a.Shape) != 2 || len(b.Shape) != 2 {
		return fmt.Errorf("%s has shape %d and %s has shape %d; both must be matrices", endA[1:], a.Shape, endB[1:], b.Shape)
	}
	m.rank, m.in, m.out = a.Shape[0], a.Shape[1], b.Shape[0]
	if m.parameter != "" {
		m.alpha, m.each = d.settings.alphas.of(m.parameter, d.settings.alpha), d.settings.ranks.of(m.parameter, d.settings.rank)
		if m.rank != b.Shape[1] || m.rank == 0 || m.in == 0 || m.out == 0 {
			return fmt.Errorf("%s has shape %d and %s has shape %d; the first must have one row for each column of the second",
				endA[1:], a.Shape, endB[1:], b.Shape)
		}
		return nil
	}
	m.alpha = d.settings.alphas.of(m.name, d.settings.alpha)
	want := d.settings.ranks.of(m.name, d.settings.rank)
	switch {
	case m.rank != want || b.Shape[1] != want:
		return fmt.Errorf("%s has shape %d and %s has shape %d, but %s gives it rank %d", endA[1:], a.Shape, endB[1:], b.Shape, ConfigFile,
			want)
	case m.in == 0 || m.out == 0:
		return fmt.Errorf("%s has shape %d and %s has shape %d", endA[1:], a.Shape, endB[1:], b.Shape)
	}
	if m.m == "" {
		return nil
	}
	if v, _ := d.file.Info(m.m); !slices.Equal(v.Shape, []int{m.out}) {
		return fmt.Errorf("%s has shape %d, but %s has %d rows", endMagnitude[1:], v.Shape, endB[1:], m.out)
	}
	return nil
}

// tensor reads a tensor of the file, whose size the file bounds. No number may be NaN or infinite.
func (d *Directory) tensor(name string) ([]float32, error) {
	info, _ := d.file.Info(name)
	data, err := d.file.Bytes(name)
	if err != nil {
		return nil, err
	}
	values, err := safetensors.Float32s(info.DType, data)
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", filepath.Join(d.path, WeightsFile), name, err)
	}
	for i, v := range values {
		if v-v != 0 {
			return nil,
				fmt.Errorf("%w: %s: tensor %q: element %d is %g, not a finite number; the file is damaged, or the adapter has diverged",
					ErrAdapter, d.file.Path(), name, i, v)
		}
	}
	return values, nil
}
