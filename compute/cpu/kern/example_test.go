package kern_test

import (
	"fmt"

	"talf/compute/cpu/kern"
)

// A weight [3][2] is packed once; products with it then take any rows.
func ExampleFuncs() {
	k, err := kern.For(kern.Best())
	if err != nil {
		fmt.Println(err)
		return
	}
	weight := []float32{1, 2, 3, 4, 5, 6}
	panels := make([]float32, kern.PanelLen(3, 2))
	kern.PackRows(panels, weight, 3, 2, 2)

	x := []float32{10, 1}
	y := make([]float32, kern.Panel) // a whole panel, of which 3 outputs are ours
	k.Gemm(y, kern.Panel, x, 2, 1, panels, kern.Panel, 1, 2, false)
	fmt.Println(y[:3], k.ArgMax(y))
	// Output: [12 34 56] 2
}
