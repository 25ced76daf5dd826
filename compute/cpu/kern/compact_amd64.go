//go:build amd64 && !purego

package kern

// unpackAsm returns what unpacks a compact format, which moves bits and multiplies scales, so that all classes share it.
func unpackAsm(name string) func(dst, src *byte, blocks int) {
	switch name {
	case "Q5_0":
		return unpackQ50AVX2
	case "Q5_0 plain":
		return unpackQ50PlainAVX2
	case "IQ4_NL":
		return unpackIQ4NLAVX2
	case "Q4_1":
		return unpackQ41AVX2
	case "Q5_1":
		return unpackQ51AVX2
	case "Q5_K":
		return unpackQ5KAVX2
	case "IQ4_XS":
		return unpackIQ4XSAVX2
	case "MXFP4":
		return unpackMXFP4AVX2
	}
	return nil
}

// The products with q8m by number of rows; those of class avx512vnni by planes, counted from 0, first.
var (
	gemmsQ8MAVX2 = [...]gemmQ8Func{
		1: gemmQ8Mx1AVX2, gemmQ8Mx2AVX2, gemmQ8Mx3AVX2, gemmQ8Mx4AVX2, gemmQ8Mx5AVX2, gemmQ8Mx6AVX2,
	}
	gemmsQ8MAVX512 = [...]gemmQ8Func{
		1: gemmQ8Mx1AVX512, gemmQ8Mx2AVX512, gemmQ8Mx3AVX512, gemmQ8Mx4AVX512,
		gemmQ8Mx5AVX512, gemmQ8Mx6AVX512, gemmQ8Mx7AVX512, gemmQ8Mx8AVX512,
	}
	gemmsQ8MVNNI = [2][13]gemmQ8Func{
		{
			1: gemmQ8MPlanes1x1AVX512VNNI, gemmQ8MPlanes1x2AVX512VNNI, gemmQ8MPlanes1x3AVX512VNNI, gemmQ8MPlanes1x4AVX512VNNI,
			gemmQ8MPlanes1x5AVX512VNNI, gemmQ8MPlanes1x6AVX512VNNI, gemmQ8MPlanes1x7AVX512VNNI, gemmQ8MPlanes1x8AVX512VNNI,
			gemmQ8MPlanes1x9AVX512VNNI, gemmQ8MPlanes1x10AVX512VNNI, gemmQ8MPlanes1x11AVX512VNNI, gemmQ8MPlanes1x12AVX512VNNI,
		},
		{
			1: gemmQ8MPlanes2x1AVX512VNNI, gemmQ8MPlanes2x2AVX512VNNI, gemmQ8MPlanes2x3AVX512VNNI, gemmQ8MPlanes2x4AVX512VNNI,
			gemmQ8MPlanes2x5AVX512VNNI, gemmQ8MPlanes2x6AVX512VNNI, gemmQ8MPlanes2x7AVX512VNNI, gemmQ8MPlanes2x8AVX512VNNI,
			gemmQ8MPlanes2x9AVX512VNNI, gemmQ8MPlanes2x10AVX512VNNI, gemmQ8MPlanes2x11AVX512VNNI, gemmQ8MPlanes2x12AVX512VNNI,
		},
	}
)
