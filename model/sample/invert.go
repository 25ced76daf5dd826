package sample

// Invert returns the token at quantile u of probabilities d, by ascending id. A token without mass is never
// returned. It first finds the run of tokens that contains the quantile.
func Invert(d []float64, u float64) int32 {
	var sum float64
	for at := 0; at < len(d); at += Bin {
		sum += Sum(d[at:min(at+Bin, len(d))])
	}
	u *= sum
	first, left := 0, u // of the run: the last one with mass, if none contains u
	for at := 0; at < len(d); at += Bin {
		if s := Sum(d[at:min(at+Bin, len(d))]); s > 0 {
			if first, left = at, u; u < s {
				break
			}
			u -= s
		}
	}
	last := int32(first)
	for i, p := range d[first:min(first+Bin, len(d))] {
		if p > 0 {
			last = int32(first + i)
			if left -= p; left < 0 {
				break
			}
		}
	}
	return last
}
