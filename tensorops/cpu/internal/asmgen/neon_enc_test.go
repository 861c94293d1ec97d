package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// generatedWord is a line of a generated file that holds an instruction's bits.
var generatedWord = regexp.MustCompile(`(?m)^\tWORD +\$(0x[0-9a-f]{8}) // (.+)$`)

// written are the instructions that the generated files hold as words: what each has as its
// bits, by its text.
func written(t *testing.T) (texts []string, bits map[string]uint32) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "*", "*_neon_arm64.s"))
	if err != nil || len(files) != len(neonKernels()) {
		t.Fatalf("%d files of assembly for arm64, want %d (%v)", len(files), len(neonKernels()), err)
	}
	bits = map[string]uint32{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if all := bytes.Count(text, []byte("WORD ")); all != len(generatedWord.FindAll(text, -1)) {
			t.Errorf("%s: %d words, not all of which have their text beside them", f, all)
		}
		for _, m := range generatedWord.FindAllSubmatch(text, -1) {
			b, err := strconv.ParseUint(string(m[1]), 0, 32)
			if err != nil {
				t.Fatal(err)
			}
			text := string(m[2])
			old, seen := bits[text]
			if seen && old != uint32(b) {
				t.Errorf("%s: %s is %#08x here and %#08x elsewhere", f, text, b, old)
			}
			if !seen {
				bits[text], texts = uint32(b), append(texts, text)
			}
		}
	}
	return texts, bits
}

// samples are every instruction of neon_enc.go with registers and lanes that set each bit
// of their fields.
func samples() (texts []string, bits map[string]uint32) {
	bits = map[string]uint32{}
	add := func(ws ...word) {
		for _, w := range ws {
			if _, seen := bits[w.text]; !seen {
				bits[w.text], texts = w.bits, append(texts, w.text)
			}
		}
	}
	regs := []v{0, 1, 2, 4, 8, 16, 31}
	for i, d := range regs {
		a, b := regs[(i+1)%len(regs)], regs[(i+3)%len(regs)]
		for _, op := range []three{opFADD, opFSUB, opFMUL, opFDIV, opFMAX, opFMIN, opFMAXNM, opFCMEQ, opFCMGT, opFCMGE} {
			add(op.s(d, a, b), op.d(d, a, b))
		}
		for _, op := range []two{opFNEG, opFABS, opFSQRT, opFRINTM, opFCVTZU} {
			add(op.s(d, a))
		}
		add(opUMAX.s(d, a, b), pairLargest(d, a), product32(d, a, b), fraction16(d, a), above0(d, a))
		for lane := range 4 {
			add(fmlaElement(d, a, b, lane))
		}
		for _, upper := range []bool{false, true} {
			add(widenDouble(d, a, upper), shiftWiden(d, a, upper), upperHalves(d, a, upper), product64(d, a, b, upper))
		}
		add(pairSum(d, a), pairSumDouble(d, a), pairMax(d, a), notLess(d, a, b), storePast(d, a, gp(b%31)))
	}
	return texts, bits
}

// tool finds one of GNU's tools for arm64, or skips the test.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath("aarch64-linux-gnu-" + name)
	if err != nil {
		t.Skipf("no aarch64-linux-gnu-%s here (Debian: binutils-aarch64-linux-gnu): the encodings of NEON are not compared with it", name)
	}
	return path
}

func runTool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(append([]string{name}, args...), " "), err, out)
	}
	return string(out)
}

// GNU's assembler makes the same bits of the text.
func TestAssembles(t *testing.T) {
	as, objcopy := tool(t, "as"), tool(t, "objcopy")
	for name, list := range map[string]func() ([]string, map[string]uint32){
		"generated": func() ([]string, map[string]uint32) { return written(t) }, "samples": samples,
	} {
		texts, bits := list()
		dir := t.TempDir()
		source, object, binary := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.o"), filepath.Join(dir, "a.bin")
		if err := os.WriteFile(source, []byte(strings.Join(texts, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		runTool(t, as, "-o", object, source)
		runTool(t, objcopy, "-O", "binary", "-j", ".text", object, binary)
		got := words(t, binary)
		if len(got) != len(texts) || len(texts) < 30 {
			t.Fatalf("%s: %d instructions became %d", name, len(texts), len(got))
		}
		for i, text := range texts {
			if got[i] != bits[text] {
				t.Errorf("%s: %s is %#08x, the generator writes %#08x", name, text, got[i], bits[text])
			}
		}
		t.Logf("%s: %d instructions", name, len(texts))
	}
}

func words(t *testing.T, path string) []uint32 {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]uint32, len(raw)/4)
	for i := range all {
		all[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return all
}

// disassembled is a line of objdump.
var disassembled = regexp.MustCompile(`(?m)^ *[0-9a-f]+:\t([0-9a-f]{8}) \t(.+?)(?:\t//.*)?$`)

// GNU's disassembler makes the same text of the bits.
func TestDisassembles(t *testing.T) {
	objdump := tool(t, "objdump")
	texts, bits := written(t)
	var raw []byte
	for _, text := range texts {
		raw = binary.LittleEndian.AppendUint32(raw, bits[text])
	}
	path := filepath.Join(t.TempDir(), "words.bin")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	lines := disassembled.FindAllStringSubmatch(runTool(t, objdump, "-D", "-z", "-b", "binary", "-m", "aarch64", path), -1)
	if len(lines) != len(texts) {
		t.Fatalf("%d words became %d lines", len(texts), len(lines))
	}
	for i, text := range texts {
		if got := strings.ReplaceAll(lines[i][2], "\t", " "); got != text {
			t.Errorf("%#08x is %q, the file says %q", bits[text], got, text)
		}
	}
}
