// Package lookup has the data structures that training-free drafters draft from: an index of
// the n-grams of a sequence, and tables of the tokens that a target considered likely after one
// token or two.
//
// They know nothing about models, and their memory is bounded: a table's by its parameters, an
// index's by the sequence. None of them is safe for concurrent use.
package lookup
