#include "textflag.h"

// Each constant once; the code broadcasts them.
DATA expConst<>+0(SB)/4, $0xc2d00000  // -104: e^x rounds to 0 below
DATA expConst<>+4(SB)/4, $0x42b20000  // 89: e^x is infinite above
DATA expConst<>+8(SB)/4, $0x3fb8aa3b  // log2(e)
DATA expConst<>+12(SB)/4, $0x4b400000 // 1.5·2^23: adding it rounds to an integer
DATA expConst<>+16(SB)/4, $0x3f318000 // ln 2, high part: 0.693359375
DATA expConst<>+20(SB)/4, $0xb95e8083 // ln 2, low part: -2.12194440e-4
DATA expConst<>+24(SB)/4, $0x39500d01 // 1/5040
DATA expConst<>+28(SB)/4, $0x3ab60b61 // 1/720
DATA expConst<>+32(SB)/4, $0x3c088889 // 1/120
DATA expConst<>+36(SB)/4, $0x3d2aaaab // 1/24
DATA expConst<>+40(SB)/4, $0x3e2aaaab // 1/6
DATA expConst<>+44(SB)/4, $0x3f000000 // 1/2
DATA expConst<>+48(SB)/4, $0x3f800000 // 1
DATA expConst<>+52(SB)/4, $127        // bias of the exponent
GLOBL expConst<>(SB), RODATA|NOPTR, $56

// expAVX2 is exp32 for eight numbers at a time, by the same polynomial with FMA.
//
// Registers: Y0 x, Y1 n = round(x/ln 2), Y2 r = x − n·ln 2 and then the integer
// halves of n, Y3 e^r; Y4 to Y15 the constants.
//
// func expAVX2(dst, src *float32, eights int)
TEXT ·expAVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ eights+16(FP), CX
	LEAQ expConst<>(SB), AX
	VBROADCASTSS 8(AX), Y4
	VBROADCASTSS 12(AX), Y5
	VBROADCASTSS 16(AX), Y6
	VBROADCASTSS 20(AX), Y7
	VBROADCASTSS 24(AX), Y8
	VBROADCASTSS 28(AX), Y9
	VBROADCASTSS 32(AX), Y10
	VBROADCASTSS 36(AX), Y11
	VBROADCASTSS 40(AX), Y12
	VBROADCASTSS 44(AX), Y13
	VBROADCASTSS 48(AX), Y14
	VPBROADCASTD 52(AX), Y15
	TESTQ CX, CX
	JZ    done

loop:
	VMOVUPS (SI), Y0

	// Clamp; a NaN is the second source of both and stays.
	VBROADCASTSS (AX), Y1
	VMAXPS       Y0, Y1, Y0
	VBROADCASTSS 4(AX), Y1
	VMINPS       Y0, Y1, Y0

	// n and r
	VMOVAPS      Y5, Y1
	VFMADD231PS  Y4, Y0, Y1
	VSUBPS       Y5, Y1, Y1
	VMOVAPS      Y0, Y2
	VFNMADD231PS Y6, Y1, Y2
	VFNMADD231PS Y7, Y1, Y2

	// e^r by Horner
	VMOVAPS     Y8, Y3
	VFMADD213PS Y9, Y2, Y3
	VFMADD213PS Y10, Y2, Y3
	VFMADD213PS Y11, Y2, Y3
	VFMADD213PS Y12, Y2, Y3
	VFMADD213PS Y13, Y2, Y3
	VFMADD213PS Y14, Y2, Y3
	VFMADD213PS Y14, Y2, Y3

	// times 2^n, in two factors since n may be 128 or −150
	VCVTPS2DQ Y1, Y1
	VPSRAD    $1, Y1, Y2
	VPSUBD    Y2, Y1, Y1
	VPADDD    Y15, Y1, Y1
	VPADDD    Y15, Y2, Y2
	VPSLLD    $23, Y1, Y1
	VPSLLD    $23, Y2, Y2
	VMULPS    Y1, Y3, Y3
	VMULPS    Y2, Y3, Y3
	VMOVUPS   Y3, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNZ  loop

done:
	VZEROUPPER
	RET
