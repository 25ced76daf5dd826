//go:build unix

package datastore

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// opened returns a store of a text that takes several pages, and its file.
func opened(t *testing.T) (s *Store, text []int32, path string) {
	t.Helper()
	text = randomText(rand.New(rand.NewPCG(1, 2)), 20_000, 100)
	path = filepath.Join(t.TempDir(), "store")
	if err := os.WriteFile(path, build(t, 100, text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, text, path
}

func TestAStoreThatIsCutShortWhileItIsOpenFindsNothingAndSaysSo(t *testing.T) {
	for name, use := range map[string]func(s *Store, text []int32, m Match) bool{
		"find":    func(s *Store, text []int32, _ Match) bool { return s.Find(text[:3]).Count() > 0 },
		"longest": func(s *Store, text []int32, _ Match) bool { return s.Longest(text[:9], 1, 9).Count() > 0 },
		"append":  func(s *Store, _ []int32, m Match) bool { return len(s.Append(nil, m, 9)) > 0 },
	} {
		t.Run(name, func(t *testing.T) {
			s, text, path := opened(t)
			m := s.Find(text[:1])
			if !use(s, text, m) || s.Err() != nil {
				t.Fatalf("the whole store finds nothing: %v", s.Err())
			}
			if err := os.Truncate(path, headerSize); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if use(s, text, m) {
					t.Error("it finds what is gone")
				}
			}
			if err := s.Err(); err == nil || !strings.Contains(err.Error(), "datastore "+path+": its bytes could not be read") {
				t.Errorf("%v, want an error that names %s", err, path)
			}
			if err := s.Check(); err == nil {
				t.Error("Check finds nothing wrong")
			}
		})
	}
}

// Whatever another program writes to the file, look-ups stay in bounds and in the vocabulary.
func TestAStoreThatIsOverwrittenWhileItIsOpenKeepsItsBounds(t *testing.T) {
	s, text, path := opened(t)
	rng := rand.New(rand.NewPCG(3, 4))
	junk := make([]byte, len(text)*8)
	for i := range junk {
		junk[i] = byte(rng.Uint32())
	}
	m := s.Find(text[:1])
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(junk, headerSize); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		for _, m := range []Match{m, s.Longest(text[i:i+9], 1, 9), s.Find(text[i : i+2])} {
			for _, x := range s.Append(nil, m, 16) {
				if x.Token < 0 || x.Token >= 100 {
					t.Fatalf("token %d of a vocabulary of 100", x.Token)
				}
			}
		}
	}
}
