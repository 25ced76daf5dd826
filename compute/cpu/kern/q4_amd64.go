//go:build amd64 && !purego

package kern

// The kernels by number of rows; those of class avx512vnni by planes, counted from 0, first.
var (
	gemmsQ4AVX2 = [...]gemmQ8Func{
		1: gemmQ4x1AVX2, gemmQ4x2AVX2, gemmQ4x3AVX2, gemmQ4x4AVX2, gemmQ4x5AVX2, gemmQ4x6AVX2,
	}
	gemmsQ4KAVX2 = [...]gemmQ8Func{
		1: gemmQ4Kx1AVX2, gemmQ4Kx2AVX2, gemmQ4Kx3AVX2, gemmQ4Kx4AVX2, gemmQ4Kx5AVX2, gemmQ4Kx6AVX2,
	}
	gemmsQ41AVX2 = [...]gemmQ8Func{
		1: gemmQ41x1AVX2, gemmQ41x2AVX2, gemmQ41x3AVX2, gemmQ41x4AVX2, gemmQ41x5AVX2, gemmQ41x6AVX2,
	}
	gemmsQ41AVX512 = [...]gemmQ8Func{
		1: gemmQ41x1AVX512, gemmQ41x2AVX512, gemmQ41x3AVX512, gemmQ41x4AVX512, gemmQ41x5AVX512, gemmQ41x6AVX512, gemmQ41x7AVX512, gemmQ41x8AVX512,
	}
	gemmsQ41VNNI = [2][13]gemmQ8Func{
		{
			1: gemmQ41Planes1x1AVX512VNNI, gemmQ41Planes1x2AVX512VNNI, gemmQ41Planes1x3AVX512VNNI, gemmQ41Planes1x4AVX512VNNI, gemmQ41Planes1x5AVX512VNNI, gemmQ41Planes1x6AVX512VNNI, gemmQ41Planes1x7AVX512VNNI, gemmQ41Planes1x8AVX512VNNI, gemmQ41Planes1x9AVX512VNNI, gemmQ41Planes1x10AVX512VNNI, gemmQ41Planes1x11AVX512VNNI, gemmQ41Planes1x12AVX512VNNI,
		},
		{
			1: gemmQ41Planes2x1AVX512VNNI, gemmQ41Planes2x2AVX512VNNI, gemmQ41Planes2x3AVX512VNNI, gemmQ41Planes2x4AVX512VNNI, gemmQ41Planes2x5AVX512VNNI, gemmQ41Planes2x6AVX512VNNI, gemmQ41Planes2x7AVX512VNNI, gemmQ41Planes2x8AVX512VNNI, gemmQ41Planes2x9AVX512VNNI, gemmQ41Planes2x10AVX512VNNI, gemmQ41Planes2x11AVX512VNNI, gemmQ41Planes2x12AVX512VNNI,
		},
	}
	gemmsQ4AVX512 = [...]gemmQ8Func{
		1: gemmQ4x1AVX512, gemmQ4x2AVX512, gemmQ4x3AVX512, gemmQ4x4AVX512, gemmQ4x5AVX512, gemmQ4x6AVX512, gemmQ4x7AVX512, gemmQ4x8AVX512,
	}
	gemmsQ4KAVX512 = [...]gemmQ8Func{
		1: gemmQ4Kx1AVX512, gemmQ4Kx2AVX512, gemmQ4Kx3AVX512, gemmQ4Kx4AVX512, gemmQ4Kx5AVX512, gemmQ4Kx6AVX512, gemmQ4Kx7AVX512, gemmQ4Kx8AVX512,
	}
	gemmsQ4VNNI = [2][13]gemmQ8Func{
		{
			1: gemmQ4Planes1x1AVX512VNNI, gemmQ4Planes1x2AVX512VNNI, gemmQ4Planes1x3AVX512VNNI, gemmQ4Planes1x4AVX512VNNI,
			gemmQ4Planes1x5AVX512VNNI, gemmQ4Planes1x6AVX512VNNI, gemmQ4Planes1x7AVX512VNNI, gemmQ4Planes1x8AVX512VNNI,
			gemmQ4Planes1x9AVX512VNNI, gemmQ4Planes1x10AVX512VNNI, gemmQ4Planes1x11AVX512VNNI, gemmQ4Planes1x12AVX512VNNI,
		},
		{
			1: gemmQ4Planes2x1AVX512VNNI, gemmQ4Planes2x2AVX512VNNI, gemmQ4Planes2x3AVX512VNNI, gemmQ4Planes2x4AVX512VNNI,
			gemmQ4Planes2x5AVX512VNNI, gemmQ4Planes2x6AVX512VNNI, gemmQ4Planes2x7AVX512VNNI, gemmQ4Planes2x8AVX512VNNI,
			gemmQ4Planes2x9AVX512VNNI, gemmQ4Planes2x10AVX512VNNI, gemmQ4Planes2x11AVX512VNNI, gemmQ4Planes2x12AVX512VNNI,
		},
	}
	gemmsQ4KVNNI = [2][13]gemmQ8Func{
		{
			1: gemmQ4KPlanes1x1AVX512VNNI, gemmQ4KPlanes1x2AVX512VNNI, gemmQ4KPlanes1x3AVX512VNNI, gemmQ4KPlanes1x4AVX512VNNI,
			gemmQ4KPlanes1x5AVX512VNNI, gemmQ4KPlanes1x6AVX512VNNI, gemmQ4KPlanes1x7AVX512VNNI, gemmQ4KPlanes1x8AVX512VNNI,
			gemmQ4KPlanes1x9AVX512VNNI, gemmQ4KPlanes1x10AVX512VNNI, gemmQ4KPlanes1x11AVX512VNNI, gemmQ4KPlanes1x12AVX512VNNI,
		},
		{
			1: gemmQ4KPlanes2x1AVX512VNNI, gemmQ4KPlanes2x2AVX512VNNI, gemmQ4KPlanes2x3AVX512VNNI, gemmQ4KPlanes2x4AVX512VNNI,
			gemmQ4KPlanes2x5AVX512VNNI, gemmQ4KPlanes2x6AVX512VNNI, gemmQ4KPlanes2x7AVX512VNNI, gemmQ4KPlanes2x8AVX512VNNI,
			gemmQ4KPlanes2x9AVX512VNNI, gemmQ4KPlanes2x10AVX512VNNI, gemmQ4KPlanes2x11AVX512VNNI, gemmQ4KPlanes2x12AVX512VNNI,
		},
	}
	gemmsQ6KAVX2 = [...]gemmQ8Func{
		1: gemmQ6Kx1AVX2, gemmQ6Kx2AVX2, gemmQ6Kx3AVX2, gemmQ6Kx4AVX2,
		gemmQ6Kx5AVX2, gemmQ6Kx6AVX2,
	}
	gemmsQ6KAVX512 = [...]gemmQ8Func{
		1: gemmQ6Kx1AVX512, gemmQ6Kx2AVX512, gemmQ6Kx3AVX512, gemmQ6Kx4AVX512,
		gemmQ6Kx5AVX512, gemmQ6Kx6AVX512, gemmQ6Kx7AVX512, gemmQ6Kx8AVX512,
	}
	gemmsQ6KVNNI = [2][9]gemmQ8Func{
		{
			1: gemmQ6KPlanes1x1AVX512VNNI, gemmQ6KPlanes1x2AVX512VNNI, gemmQ6KPlanes1x3AVX512VNNI, gemmQ6KPlanes1x4AVX512VNNI,
			gemmQ6KPlanes1x5AVX512VNNI, gemmQ6KPlanes1x6AVX512VNNI, gemmQ6KPlanes1x7AVX512VNNI, gemmQ6KPlanes1x8AVX512VNNI,
		},
		{
			1: gemmQ6KPlanes2x1AVX512VNNI, gemmQ6KPlanes2x2AVX512VNNI, gemmQ6KPlanes2x3AVX512VNNI, gemmQ6KPlanes2x4AVX512VNNI,
			gemmQ6KPlanes2x5AVX512VNNI, gemmQ6KPlanes2x6AVX512VNNI, gemmQ6KPlanes2x7AVX512VNNI, gemmQ6KPlanes2x8AVX512VNNI,
		},
	}
)
