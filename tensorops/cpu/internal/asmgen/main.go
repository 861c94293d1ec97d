// Asmgen writes the assembly of the packages beside it, a file for each kernel
// and instruction set, and the Go declarations of its functions. Run it in its
// own folder after a change:
//
//	go run .         # all packages
//	go run . vec     # one
//	go test .        # is what is committed what it writes?
//
// It is a module of its own, so that Troupe does not depend on the assembler it
// uses (avo, which names operands, allocates registers and checks both). It may
// import nothing of Troupe and knows nothing of what the kernels are used for.
//
// avo knows amd64 alone. For arm64 the files neon*.go write Go's assembly themselves, and
// what Go's assembler does not know of NEON as words (neon_enc.go). TestInstructions
// shows how long the loops are beside those of AVX2.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

// kernel is one file of assembly for amd64. Those for arm64 are neonKernels.
type kernel struct {
	pkg  string // the package it is part of: a folder beside this one
	name string // the file is name_amd64.s
	doc  string // what a reader of the file should know first
	emit func(c *build.Context)
}

// kernels lists all that is generated.
func kernels() []kernel { return slices.Concat(gemmKernels(), attnKernels(), vecKernels()) }

func main() {
	files, err := generate(kernels())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for path, text := range files {
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], filepath.Base(filepath.Dir(path))) {
			continue
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// generate returns the text of every file by its path: one of assembly for each
// kernel, and one of declarations, asm_amd64.go and asm_arm64.go, for each package.
func generate(all []kernel) (map[string][]byte, error) {
	files := map[string][]byte{}
	stubs := map[string]*ir.File{}
	for _, k := range all {
		c := build.NewContext()
		k.emit(c)
		f, err := c.Result()
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w", k.pkg, k.name, err)
		}
		if err := pass.Compile.Execute(f); err != nil {
			return nil, fmt.Errorf("%s/%s: %w", k.pkg, k.name, err)
		}
		text, err := printer.NewGoAsm(config(k.pkg)).Print(f)
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w", k.pkg, k.name, err)
		}
		// Without AVX-512 there are 16 vector registers, which avo doesn't know.
		if r := beyond16.Find(text); r != nil && !strings.Contains(k.name, "avx512") && k.name != "pack_amx" {
			return nil, fmt.Errorf("%s/%s: it needs %s, and AVX2 has 16 vector registers", k.pkg, k.name, r)
		}
		files[filepath.Join("..", k.pkg, k.name+"_amd64.s")] = documented(text, k.doc)
		if stubs[k.pkg] == nil {
			stubs[k.pkg] = ir.NewFile()
		}
		for _, fn := range f.Functions() {
			stubs[k.pkg].AddSection(fn)
		}
	}
	arm := map[string]*ir.File{}
	for _, k := range neonKernels() {
		n := new(neon)
		k.emit(n)
		files[filepath.Join("..", k.pkg, k.name+"_neon_arm64.s")] = documented(n.file(), k.doc)
		if arm[k.pkg] == nil {
			arm[k.pkg] = ir.NewFile()
		}
		for _, f := range n.functions {
			arm[k.pkg].AddSection(f.ir)
		}
	}
	for arch, stubs := range map[string]map[string]*ir.File{"amd64": stubs, "arm64": arm} {
		for pkg, f := range stubs {
			text, err := printer.NewStubs(config(pkg)).Print(f)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", pkg, err)
			}
			files[filepath.Join("..", pkg, "asm_"+arch+".go")] = text
		}
	}
	return files, nil
}

var beyond16 = regexp.MustCompile(`\b[XYZ](1[6-9]|2[0-9]|3[01])\b`)

func config(pkg string) printer.Config { return printer.Config{Name: "asmgen", Pkg: pkg} }

// documented puts a kernel's doc after the first line, which says that the file
// is generated.
func documented(text []byte, doc string) []byte {
	if doc == "" {
		return text
	}
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	comment := "// " + strings.ReplaceAll(strings.TrimSpace(doc), "\n", "\n// ")
	comment = strings.ReplaceAll(comment, "// \n", "//\n")
	return slices.Concat(first, []byte("\n\n"+comment+"\n"), rest)
}
