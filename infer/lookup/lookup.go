// Package lookup holds what training-free drafters draft from: an index of the
// n-grams of a sequence, and tables of the tokens that a target thought likely
// after a token or after two.
//
// These are plain data structures. They know no models, and their memory is
// bounded: a table by what it is given, an index by the sequence. None of them
// is safe for concurrent use.
package lookup
