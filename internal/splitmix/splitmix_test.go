package splitmix_test

import (
	"testing"

	"talf/internal/splitmix"
)

// The first outputs of SplitMix64 from seed 1234567, as its authors' C program
// prints them.
func TestOutputsAreThoseOfTheReference(t *testing.T) {
	state := uint64(1234567)
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		state += splitmix.Gamma
		if got := splitmix.Mix(state); got != want {
			t.Errorf("output %d is %d, want %d", i, got, want)
		}
	}
}
