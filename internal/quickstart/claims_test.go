package quickstart

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

var result = flag.String("quickstart", "", "JSON that talf quickstart printed: hold it to the README's claims")

func beamWith(head string) func(Row) bool {
	return func(r Row) bool { return r.Head == head && strings.HasPrefix(r.Method, "beam:") }
}

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
	// Beam's trees have one shape on every machine. Those of salf follow measured costs, so that their τ does, too: on
	// the deepened target it was 2.0 and 2.4 beside other work and 3.0 alone.
	eagle, talf := got.Rows[slices.IndexFunc(got.Rows, beamWith("eagle"))], got.Rows[slices.IndexFunc(got.Rows, beamWith("talf"))]
	if talf.Tau < 3.2 || talf.Tau < eagle.Tau+1 {
		t.Errorf("beam: τ %.2f with talf's head and %.2f with eagle's, want at least 3.2 and 1 more than eagle's", talf.Tau, eagle.Tau)
	}
	for i, r := range slices.Concat(got.Rows, got.Deep) {
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
			if i < len(got.Rows) && r.Tau < 2 {
				t.Errorf("%s: τ %.3f, want at least 2.0", r.Label(), r.Tau)
			}
		}
	}
}
