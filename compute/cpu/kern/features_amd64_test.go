//go:build !purego

package kern

import "testing"

// A class needs every one of its features, and those of the classes before it: hypervisors hide single ones.
func TestClassesNeedAllOfTheirFeatures(t *testing.T) {
	const haswell = hasAVX2 | hasFMA | hasF16C
	for name, c := range map[string]struct {
		p    features
		want Class
	}{
		"all":                              {allFeatures, AMX},
		"all but AVX2":                     {allFeatures &^ hasAVX2, Portable},
		"all but FMA":                      {allFeatures &^ hasFMA, Portable},
		"all but F16C":                     {allFeatures &^ hasF16C, Portable},
		"all but AVX-512F":                 {allFeatures &^ hasAVX512F, AVXVNNI},
		"all but AVX-512BW":                {allFeatures &^ hasAVX512BW, AVXVNNI},
		"all but AVX-512DQ":                {allFeatures &^ hasAVX512DQ, AVXVNNI},
		"all but AVX-512VL":                {allFeatures &^ hasAVX512VL, AVXVNNI},
		"all but VNNI":                     {allFeatures &^ hasVNNI, AVX512},
		"all but AVX-VNNI":                 {allFeatures &^ hasAVXVNNI, AMX},
		"all but tiles":                    {allFeatures &^ hasAMX, AVX512VNNI},
		"Nehalem, and Sandy Bridge":        {0, Portable},
		"Piledriver":                       {hasFMA | hasF16C, Portable},
		"Haswell, and Zen 3":               {haswell, AVX2},
		"Alder Lake":                       {haswell | hasAVXVNNI, AVXVNNI},
		"Zen 5":                            {allFeatures &^ hasAMX, AVX512VNNI},
		"Knights Landing":                  {haswell | hasAVX512F, AVX2},
		"Skylake-SP":                       {haswell | hasAVX512F | hasAVX512BW | hasAVX512DQ | hasAVX512VL, AVX512},
		"tiles in a guest without AVX-512": {haswell | hasAMX, AVX2},
	} {
		best := Portable
		for class := range Class(len(names)) {
			if c.p.runs(class) {
				best = class
			}
		}
		if best != c.want {
			t.Errorf("%s: %v, want %v", name, best, c.want)
		}
	}
}
