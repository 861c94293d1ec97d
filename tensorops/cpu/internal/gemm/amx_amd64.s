// Products of bfloat16 by AMX. The assembler does not know these instructions, so
// they are spelled in bytes (Intel 64 manual, volume 2, "VEX" and the pages of the
// instructions).
//
// Registers: tiles 0 to 3 hold a square of 2 × 2 tiles of C (32 × 32 float32);
// tiles 4 and 5 a strip of A, tiles 6 and 7 one of B. Each tile of A and of B is
// read once for two products, and four products don't wait for each other.
//
// The tiles are configured at the start and released at the end: between, nothing
// can move the goroutine to another thread, and a signal's handler saves and
// restores tiles with all else.

#include "textflag.h"

// Palette 1; each of the eight tiles has 16 rows of 64 bytes.
DATA ·configAMX+0(SB)/8, $1
DATA ·configAMX+8(SB)/8, $0
DATA ·configAMX+16(SB)/8, $0x0040004000400040
DATA ·configAMX+24(SB)/8, $0x0040004000400040
DATA ·configAMX+32(SB)/8, $0
DATA ·configAMX+40(SB)/8, $0
DATA ·configAMX+48(SB)/8, $0x1010101010101010
DATA ·configAMX+56(SB)/8, $0
GLOBL ·configAMX(SB), RODATA|NOPTR, $64

// Numbers of general registers in instructions.
#define rAX 0
#define rCX 1
#define rDX 2
#define rBX 3
#define rSI 6
#define rDI 7

// LDTILECFG_AX configures the tiles from the memory at AX.
#define LDTILECFG_AX BYTE $0xC4; BYTE $0xE2; BYTE $0x78; BYTE $0x49; BYTE $0x00

#define TILERELEASE BYTE $0xC4; BYTE $0xE2; BYTE $0x78; BYTE $0x49; BYTE $0xC0

#define TILEZERO(t) BYTE $0xC4; BYTE $0xE2; BYTE $0x7B; BYTE $0x49; BYTE $(0xC0|(t<<3))

// TILELOADD reads tile t from disp(base), its rows a distance of index apart.
#define TILELOADD(t, base, index, disp) \
	BYTE $0xC4; BYTE $0xE2; BYTE $0x7B; BYTE $0x4B; BYTE $(0x84|(t<<3)); BYTE $((index<<3)|base); LONG $disp

// TILELOADDT1 is TILELOADD of what is not read again soon: it leaves the first-level cache alone.
#define TILELOADDT1(t, base, index, disp) \
	BYTE $0xC4; BYTE $0xE2; BYTE $0x79; BYTE $0x4B; BYTE $(0x84|(t<<3)); BYTE $((index<<3)|base); LONG $disp

#define TILESTORED(t, base, index, disp) \
	BYTE $0xC4; BYTE $0xE2; BYTE $0x7A; BYTE $0x4B; BYTE $(0x84|(t<<3)); BYTE $((index<<3)|base); LONG $disp

// TDPBF16PS adds the product of the tiles a and b to tile c.
#define TDPBF16PS(c, a, b) \
	BYTE $0xC4; BYTE $0xE2; BYTE $(0x02|((15-b)<<3)); BYTE $0x5C; BYTE $(0xC0|(c<<3)|a)

// func tilesAMX(rows, cols, steps int, a, b, c unsafe.Pointer, ldc, aRow, aTile, aStep, aNext, bNext int, add bool)
//
// SI and AX walk through the two tiles of A, whose rows are a distance of DX apart, DI through B, whose
// rows are BX apart; R15 is the square of C, CX the distance of its rows. R8 to R14: rows
// left, cols left, steps left, the strip of B, the column of C, add, and the row of C
// that is fetched while the sums are made, two rows a step: a row may lie in three
// lines, and a store that waits for its line holds up what follows.
TEXT ·tilesAMX(SB), NOSPLIT, $0-97
	LEAQ ·configAMX(SB), AX
	LDTILECFG_AX
	MOVQ cols+8(FP), R9
	MOVQ b+32(FP), R11
	MOVQ c+40(FP), R12
	MOVQ ldc+48(FP), CX
	MOVBLZX add+96(FP), R13
	MOVQ $64, BX

column:
	MOVQ rows+0(FP), R8
	MOVQ a+24(FP), SI
	MOVQ R12, DX

square:
	MOVQ DX, R15
	MOVQ DX, R14
	TESTL R13, R13
	JZ   zero
	MOVQ CX, AX
	SHLQ $4, AX
	ADDQ DX, AX
	TILELOADD(0, rDX, rCX, 0)
	TILELOADD(1, rDX, rCX, 64)
	TILELOADD(2, rAX, rCX, 0)
	TILELOADD(3, rAX, rCX, 64)
	JMP  multiply

zero:
	TILEZERO(0)
	TILEZERO(1)
	TILEZERO(2)
	TILEZERO(3)

multiply:
	MOVQ R11, DI
	MOVQ steps+16(FP), R10
	MOVQ aRow+56(FP), DX
	MOVQ aTile+64(FP), AX
	ADDQ SI, AX

step:
	TILELOADDT1(4, rSI, rDX, 0)
	TILELOADD(6, rDI, rBX, 0)
	TDPBF16PS(0, 4, 6)
	TILELOADD(7, rDI, rBX, 1024)
	TDPBF16PS(1, 4, 7)
	TILELOADDT1(5, rAX, rDX, 0)
	TDPBF16PS(2, 5, 6)
	PREFETCHT0 0(R14)
	PREFETCHT0 64(R14)
	PREFETCHT0 124(R14)
	PREFETCHT0 0(R14)(CX*1)
	PREFETCHT0 64(R14)(CX*1)
	PREFETCHT0 124(R14)(CX*1)
	TDPBF16PS(3, 5, 7)
	LEAQ (R14)(CX*2), R14
	ADDQ aStep+72(FP), SI
	ADDQ aStep+72(FP), AX
	ADDQ $2048, DI
	DECQ R10
	JNZ  step

	MOVQ R15, DX
	MOVQ CX, AX
	SHLQ $4, AX
	ADDQ DX, AX
	TILESTORED(0, rDX, rCX, 0)
	TILESTORED(1, rDX, rCX, 64)
	TILESTORED(2, rAX, rCX, 0)
	TILESTORED(3, rAX, rCX, 64)
	MOVQ CX, AX
	SHLQ $5, AX
	ADDQ AX, DX
	ADDQ aNext+80(FP), SI
	DECQ R8
	JNZ  square

	MOVQ DI, R11
	ADDQ bNext+88(FP), R11
	ADDQ $128, R12
	DECQ R9
	JNZ  column
	TILERELEASE
	RET
