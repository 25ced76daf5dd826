package method

import (
	"errors"
	"fmt"
	"math"

	"talf/infer/lookup/datastore"
)

// OpenStore opens a datastore for a target.
func OpenStore(path string, e Env) (*datastore.Store, error) {
	if path == "" {
		return nil, errors.New("it needs a datastore: give file=FILE, made by talf datastore build")
	}
	tokenizer := ""
	if e.Tokenizer != nil {
		tokenizer = e.Tokenizer()
	}
	s, err := datastore.Open(path, tokenizer)
	if err != nil {
		return nil, FileError{Err: err}
	}
	if v := s.Info().Vocab; e.Vocab > 0 && v > e.Vocab {
		return nil, FileError{Err: errors.Join(fmt.Errorf("datastore %s: a vocabulary of %d, the model's is %d", path, v, e.Vocab), s.Close())}
	}
	return s, nil
}

// Following appends the tokens that follow m most often in a datastore, of those that may come (nil: all), at most
// most of them.
func Following(dst []datastore.Next, s *datastore.Store, m datastore.Match, most int, may func(token int32) bool) []datastore.Next {
	if may == nil {
		return s.Append(dst, m, most)
	}
	first := len(dst)
	all := s.Append(dst, m, math.MaxInt)
	dst = all[:first]
	for _, x := range all[first:] {
		if len(dst)-first == most {
			break
		}
		if may(x.Token) {
			dst = append(dst, x)
		}
	}
	return dst
}
