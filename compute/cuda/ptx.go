//go:build gpu && linux && cgo

package cuda

import _ "embed"

// ptx are the kernels, from kernels/ by clang.
//
//go:generate go test -tags gpu -run TestGeneratedPTX -update .
//go:embed kernels.ptx
var ptx string
