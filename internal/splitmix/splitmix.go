// Package splitmix has the hash of SplitMix64 (Steele, Lea and Flood 2014), from which seeds,
// draws and hash tables are derived. Its bits determine what a seed gives: they never change.
package splitmix

// Gamma is the generator's increment: 2⁶⁴ over the golden ratio, made odd.
const Gamma = 0x9e3779b97f4a7c15

// Mix spreads the bits of x over the result: the generator's finaliser, a bijection.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Uniform maps a seed and two words to [0,1): one step of SplitMix64 per word in turn, top 53 bits.
func Uniform(seed, a, b uint64) float64 {
	h := Mix(seed + Gamma)
	h = Mix(h + a + Gamma)
	h = Mix(h + b + Gamma)
	return float64(h>>11) / (1 << 53)
}
