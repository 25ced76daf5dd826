package hardware

// Add sets z to x + y, with DAZ and FTZ. It needs AVX-512 F.
//
//go:noescape
func Add(z, x, y *[16]float32)

// FMA sets z to x·y + z, rounded once, with DAZ and FTZ. It needs AVX-512 F.
//
//go:noescape
func FMA(z, x, y *[16]float32)

// Dot adds to z the products of the pairs of bfloat16 in x and y: VDPBF16PS. It
// needs AVX-512 BF16.
//
//go:noescape
func Dot(z *[16]float32, x, y *[16]uint32)
