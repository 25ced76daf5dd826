package cpu_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"talf/compute"
	"talf/compute/cpu"
)

// Pack a weight [3][2], multiply two rows by it, read the result.
func Example() {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()

	var data []byte
	for _, v := range []float32{1, 0, 0, 1, 1, 1} {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	w, err := dev.Pack(compute.F32, compute.Matrix{Rows: 3, Cols: 2, Type: compute.F32, Data: data})
	if err != nil {
		fmt.Println(err)
		return
	}
	x, err := dev.Alloc(compute.F32, 2, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	y, err := dev.Alloc(compute.F32, 2, 3)
	if err != nil {
		fmt.Println(err)
		return
	}

	q := dev.Queue()
	q.Write(x, []float32{1, 2, 3, 4})
	q.Linear(y, x, &compute.Linear{W: w}, compute.Store, 2)
	out := make([]float32, 6)
	q.Read(out, y, 0)
	if err := q.Sync(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out)
	// Output: [1 2 3 3 4 7]
}
