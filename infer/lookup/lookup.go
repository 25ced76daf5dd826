// Package lookup holds what training-free drafters draft from: an index of the
// n-grams of a sequence, and tables of the tokens that a target thought likely
// after a token or after two.
//
// These are plain data structures. They know no models, and their memory is
// bounded: a table by what it is given, an index by the sequence. None of them
// is safe for concurrent use.
package lookup

// mix spreads the bits of a key over a hash: the finaliser of SplitMix64
// (Steele, Lea and Flood 2014).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
