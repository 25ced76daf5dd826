//go:build amd64 && !purego

package kern

// avxvnni differs from avx2 in products of integers only.
var avxvnni = func() Funcs {
	f := avx2
	f.Class = AVXVNNI
	f.QuantA = func(dst []uint32, x []float32, planes int) {
		quantAsm(quantsAVXVNNI[planes-1], dst, x, planes)
	}
	f.GemmQ8 = byPlanes(gemmQ8Of(gemmsQ8AVXVNNI[0][:]), gemmQ8Of(gemmsQ8AVXVNNI[1][:]))
	f.GemmQ4 = byPlanes(gemmQ4Of(gemmsQ4AVXVNNI[0][:]), gemmQ4Of(gemmsQ4AVXVNNI[1][:]))
	f.GemmQ4K = byPlanes(gemmQ4KOf(gemmsQ4KAVXVNNI[0][:]), gemmQ4KOf(gemmsQ4KAVXVNNI[1][:]))
	f.gemmQ41 = byPlanes(compactOf(gemmsQ41AVXVNNI[0][:], Q4_1), compactOf(gemmsQ41AVXVNNI[1][:], Q4_1))
	f.gemmQ50, f.rowsQ50 = compactOf(gemmsQ50AVXVNNI[:], Q5_0), [2]int{12, 0}
	f.GemmQ6K = byPlanes(gemmQ6KOf(gemmsQ6KAVXVNNI[0][:]), gemmQ6KOf(gemmsQ6KAVXVNNI[1][:]))
	f.unpackedQ8 = unpackedOf(Q8BlockLen, func(planes int) []gemmQ8Func { return gemmsQ8AVXVNNI[planes-1][:] })
	f.unpackedQ8M = unpackedOf(Q8MBlockLen, func(planes int) []gemmQ8Func { return gemmsQ8MAVXVNNI[planes-1][:] })
	f.unpackedQ5, f.unpackedQ5M = nil, nil // products of bytes have no sums of 16 bits to spare
	return f
}()

// The kernels by planes of activations, from 0, and number of rows.
var (
	quantsAVXVNNI  = [2]quantFunc{quantAPlanes1AVXVNNI, quantAAVXVNNI}
	gemmsQ8AVXVNNI = [2][7]gemmQ8Func{
		{
			1: gemmQ8Planes1x1AVXVNNI, gemmQ8Planes1x2AVXVNNI, gemmQ8Planes1x3AVXVNNI, gemmQ8Planes1x4AVXVNNI, gemmQ8Planes1x5AVXVNNI, gemmQ8Planes1x6AVXVNNI,
		},
		{
			1: gemmQ8x1AVXVNNI, gemmQ8x2AVXVNNI, gemmQ8x3AVXVNNI, gemmQ8x4AVXVNNI, gemmQ8x5AVXVNNI, gemmQ8x6AVXVNNI,
		},
	}
	gemmsQ8MAVXVNNI = [2][7]gemmQ8Func{
		{
			1: gemmQ8MPlanes1x1AVXVNNI, gemmQ8MPlanes1x2AVXVNNI, gemmQ8MPlanes1x3AVXVNNI, gemmQ8MPlanes1x4AVXVNNI, gemmQ8MPlanes1x5AVXVNNI, gemmQ8MPlanes1x6AVXVNNI,
		},
		{
			1: gemmQ8Mx1AVXVNNI, gemmQ8Mx2AVXVNNI, gemmQ8Mx3AVXVNNI, gemmQ8Mx4AVXVNNI, gemmQ8Mx5AVXVNNI, gemmQ8Mx6AVXVNNI,
		},
	}
	gemmsQ4AVXVNNI = [2][7]gemmQ8Func{
		{
			1: gemmQ4Planes1x1AVXVNNI, gemmQ4Planes1x2AVXVNNI, gemmQ4Planes1x3AVXVNNI, gemmQ4Planes1x4AVXVNNI, gemmQ4Planes1x5AVXVNNI, gemmQ4Planes1x6AVXVNNI,
		},
		{
			1: gemmQ4x1AVXVNNI, gemmQ4x2AVXVNNI, gemmQ4x3AVXVNNI, gemmQ4x4AVXVNNI, gemmQ4x5AVXVNNI, gemmQ4x6AVXVNNI,
		},
	}
	gemmsQ4KAVXVNNI = [2][7]gemmQ8Func{
		{
			1: gemmQ4KPlanes1x1AVXVNNI, gemmQ4KPlanes1x2AVXVNNI, gemmQ4KPlanes1x3AVXVNNI, gemmQ4KPlanes1x4AVXVNNI, gemmQ4KPlanes1x5AVXVNNI, gemmQ4KPlanes1x6AVXVNNI,
		},
		{
			1: gemmQ4Kx1AVXVNNI, gemmQ4Kx2AVXVNNI, gemmQ4Kx3AVXVNNI, gemmQ4Kx4AVXVNNI, gemmQ4Kx5AVXVNNI, gemmQ4Kx6AVXVNNI,
		},
	}
	gemmsQ41AVXVNNI = [2][7]gemmQ8Func{
		{
			1: gemmQ41Planes1x1AVXVNNI, gemmQ41Planes1x2AVXVNNI, gemmQ41Planes1x3AVXVNNI, gemmQ41Planes1x4AVXVNNI, gemmQ41Planes1x5AVXVNNI, gemmQ41Planes1x6AVXVNNI,
		},
		{
			1: gemmQ41x1AVXVNNI, gemmQ41x2AVXVNNI, gemmQ41x3AVXVNNI, gemmQ41x4AVXVNNI, gemmQ41x5AVXVNNI, gemmQ41x6AVXVNNI,
		},
	}
	gemmsQ50AVXVNNI = [...]gemmQ8Func{
		1: gemmQ50Planes1x1AVXVNNI, gemmQ50Planes1x2AVXVNNI, gemmQ50Planes1x3AVXVNNI, gemmQ50Planes1x4AVXVNNI, gemmQ50Planes1x5AVXVNNI, gemmQ50Planes1x6AVXVNNI,
	}
	gemmsQ6KAVXVNNI = [2][7]gemmQ8Func{
		{
			1: gemmQ6KPlanes1x1AVXVNNI, gemmQ6KPlanes1x2AVXVNNI, gemmQ6KPlanes1x3AVXVNNI, gemmQ6KPlanes1x4AVXVNNI, gemmQ6KPlanes1x5AVXVNNI, gemmQ6KPlanes1x6AVXVNNI,
		},
		{
			1: gemmQ6Kx1AVXVNNI, gemmQ6Kx2AVXVNNI, gemmQ6Kx3AVXVNNI, gemmQ6Kx4AVXVNNI, gemmQ6Kx5AVXVNNI, gemmQ6Kx6AVXVNNI,
		},
	}
)
