//go:build gpu && linux && cgo

package cuda

import _ "embed"

// ptx80 and ptx90 are the kernels, from kernels/ by clang, for compute capabilities from 8.0 and from 9.0 on. Those of
// a pass wait in the second for the kernels in front of them.
//
//go:generate go test -tags gpu -run TestGeneratedPTX -update .
var (
	//go:embed kernels.ptx
	ptx80 string
	//go:embed kernels90.ptx
	ptx90 string
)

// waitingMajor is the least major compute capability of ptx90.
const waitingMajor = 9
