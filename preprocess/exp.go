package preprocess

import "math"

// exp is e^x for x ≤ 0, to about 1e-15 relative. The bits of the standard library's
// version differ between processors; those of labels must not. The conversions keep
// products from being fused with sums.
func exp(x float64) float64 {
	if x < -700 {
		return 0
	}
	const (
		ln2Hi = 6.93147180369123816490e-01 // ln 2 in two parts, the first with zeros at the end
		ln2Lo = 1.90821492927058770002e-10
	)
	n := math.Floor(float64(x*math.Log2E) + 0.5)
	r := x - float64(n*ln2Hi)
	r -= float64(n * ln2Lo)
	// Taylor's series on |r| ≤ ln2/2: the term left out is below 2e-18.
	p := 1.0
	for i := 14; i >= 1; i-- {
		p = 1 + float64(float64(r*p)/float64(i))
	}
	return math.Ldexp(p, int(n))
}
