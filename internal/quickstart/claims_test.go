package quickstart

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"
)

var result = flag.String("quickstart", "", "JSON that talf quickstart printed: hold it to the README's claims")

// The README's claims about the embedded model.
func TestQuickstartClaims(t *testing.T) {
	if *result == "" {
		t.Skip("no result of a quickstart to look at: -quickstart names none")
	}
	b, err := os.ReadFile(*result)
	if err != nil {
		t.Fatal(err)
	}
	var got Result
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 7 {
		t.Fatalf("%d rows, want plain decoding and two methods with three heads", len(got.Rows))
	}
	if len(got.Deep) != 3 {
		t.Fatalf("%d rows of the deepened target, want plain decoding and a method with two heads", len(got.Deep))
	}
	// How much faster depends on the machine; that it is faster, and how many tokens a pass keeps, hardly does.
	if last := got.Deep[len(got.Deep)-1]; last.Tau < 2.8 || last.Low <= 1 {
		t.Errorf("the last line has τ %.2f and speed-up %.2f [%.2f, %.2f], want τ of at least 2.8 and an interval above 1", last.Tau, last.SpeedUp, last.Low, last.High)
	}
	for _, r := range slices.Concat(got.Rows, got.Deep) {
		t.Logf("%-16s τ %.2f, %.0f tokens/s, speed-up %.2f", r.Label(), r.Tau, r.TokensPerSecond, r.SpeedUp)
		if r.Equal != r.Outputs || r.Outputs == 0 {
			t.Errorf("%s: %d of %d outputs are plain decoding's", r.Label(), r.Equal, r.Outputs)
		}
		switch r.Head {
		case "":
			if r.Tau != 1 {
				t.Errorf("%s: τ %.3f, want exactly 1", r.Label(), r.Tau)
			}
		case "untrained":
			if r.Tau > 1.3 {
				t.Errorf("%s: τ %.3f, want at most 1.3: the control is no control", r.Label(), r.Tau)
			}
		case "talf":
			if r.Tau < 2 {
				t.Errorf("%s: τ %.3f, want at least 2.0", r.Label(), r.Tau)
			}
		}
	}
}
