#include "textflag.h"

// MXCSR with all exceptions masked, rounding to nearest even, FTZ (bit 15) and DAZ
// (bit 6).
DATA flush<>+0(SB)/4, $0x9fc0
GLOBL flush<>(SB), RODATA|NOPTR, $4

// func Add(z, x, y *[16]float32)
TEXT ·Add(SB), NOSPLIT, $8-24
	MOVQ    z+0(FP), DI
	MOVQ    x+8(FP), SI
	MOVQ    y+16(FP), DX
	STMXCSR old-8(SP)
	LDMXCSR flush<>(SB)
	VMOVUPS (SI), Z0
	VADDPS  (DX), Z0, Z0
	VMOVUPS Z0, (DI)
	LDMXCSR old-8(SP)
	VZEROUPPER
	RET

// func FMA(z, x, y *[16]float32)
TEXT ·FMA(SB), NOSPLIT, $8-24
	MOVQ        z+0(FP), DI
	MOVQ        x+8(FP), SI
	MOVQ        y+16(FP), DX
	STMXCSR     old-8(SP)
	LDMXCSR     flush<>(SB)
	VMOVUPS     (DI), Z0
	VMOVUPS     (SI), Z1
	VFMADD231PS (DX), Z1, Z0
	VMOVUPS     Z0, (DI)
	LDMXCSR     old-8(SP)
	VZEROUPPER
	RET

// func Dot(z *[16]float32, x, y *[16]uint32)
TEXT ·Dot(SB), NOSPLIT, $0-24
	MOVQ    z+0(FP), DI
	MOVQ    x+8(FP), SI
	MOVQ    y+16(FP), DX
	VMOVUPS (DI), Z0
	VMOVUPS (SI), Z1
	VMOVUPS (DX), Z2
	BYTE    $0x62; BYTE $0xf2; BYTE $0x76; BYTE $0x48; BYTE $0x52; BYTE $0xc2 // VDPBF16PS Z2, Z1, Z0
	VMOVUPS Z0, (DI)
	VZEROUPPER
	RET
