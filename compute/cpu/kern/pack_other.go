//go:build !amd64 || purego

package kern

// vectors reports that functions that all classes share are plain Go.
func vectors() bool { return false }

func transpose(_, _ []float32, _, _ int) int { return 0 }

func narrowWords([]uint16, []float32) int { return 0 }

func roundPairs([]uint32, []float32) int { return 0 }

func widenBF16Words([]float32, []byte) int { return 0 }

func widenF16Words([]float32, []byte) int { return 0 }

func pairs[T byte | uint16]([]uint16, []T, int, int) int { return 0 }

func packQ8Block(*[Q8BlockLen]byte, []float32, int) bool { return false }
