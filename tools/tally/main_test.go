package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPrint(t *testing.T) {
	const events = `{"Action":"start","Package":"talf/a"}
{"Action":"run","Package":"talf/a","Test":"TestX"}
{"Action":"output","Package":"talf/a","Test":"TestX","Output":"=== RUN   TestX\n"}
{"Action":"output","Package":"talf/a","Test":"TestX","Output":"    x_test.go:3: log\n"}
{"Action":"output","Package":"talf/a","Test":"TestX","Output":"--- PASS: TestX (0.00s)\n"}
{"Action":"pass","Package":"talf/a","Test":"TestX","Elapsed":0}
{"Action":"output","Package":"talf/a","Test":"TestY","Output":"=== RUN   TestY\n"}
{"Action":"output","Package":"talf/a","Test":"TestY","Output":"    y_test.go:30: a file is absent: data/y: no such file\n"}
{"Action":"output","Package":"talf/a","Test":"TestY","Output":"--- SKIP: TestY (0.00s)\n"}
{"Action":"skip","Package":"talf/a","Test":"TestY","Elapsed":0}
{"Action":"output","Package":"talf/a","Test":"TestZ","Output":"--- SKIP: TestZ (0.00s)\n"}
{"Action":"skip","Package":"talf/a","Test":"TestZ","Elapsed":0}
{"Action":"output","Package":"talf/a","Test":"TestW","Output":"    w_test.go:31: a file is absent: data/w: no such file\n"}
{"Action":"skip","Package":"talf/a","Test":"TestW","Elapsed":0}
{"Action":"output","Package":"talf/a","Output":"noise of an init\n"}
{"Action":"output","Package":"talf/a","Output":"PASS\n"}
{"Action":"output","Package":"talf/a","Output":"ok  \ttalf/a\t0.010s\n"}
{"Action":"pass","Package":"talf/a","Elapsed":0.01}
{"Action":"output","Package":"talf/b","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"talf/b","Test":"TestB","Output":"    b_test.go:9: 1, want 2\n"}
{"Action":"output","Package":"talf/b","Test":"TestB","Output":"--- FAIL: TestB (0.00s)\n"}
{"Action":"fail","Package":"talf/b","Test":"TestB","Elapsed":0}
{"Action":"output","Package":"talf/b","Output":"FAIL\n"}
{"Action":"output","Package":"talf/b","Output":"FAIL\ttalf/b\t0.010s\n"}
{"Action":"fail","Package":"talf/b","Elapsed":0.01}
{"ImportPath":"talf/c","Action":"build-output","Output":"c/c.go:1:1: expected 'package'\n"}
{"Action":"output","Package":"talf/d","Output":"?   \ttalf/d\t[no test files]\n"}
{"Action":"skip","Package":"talf/d","Elapsed":0}
go: warning
`
	const want = `ok  	talf/a	0.010s
    b_test.go:9: 1, want 2
--- FAIL: TestB (0.00s)
FAIL
FAIL	talf/b	0.010s
c/c.go:1:1: expected 'package'
?   	talf/d	[no test files]
go: warning
`
	var got strings.Builder
	c, err := print(strings.NewReader(events), &got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if got, want := c.String(), "tests: 5, of which 3 skipped: 2: a file is absent; 1: no reason given"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A test that is running when its process ends has no event of its own.
func TestOutputOfTestsThatNeverEndIsShown(t *testing.T) {
	const events = `{"Action":"run","Package":"talf/a","Test":"TestX"}
{"Action":"output","Package":"talf/a","Test":"TestX","Output":"=== RUN   TestX\n"}
{"Action":"output","Package":"talf/a","Test":"TestX","Output":"panic: test timed out after 2s\n"}
{"Action":"output","Package":"talf/b","Test":"TestY","Output":"still running\n"}
{"Action":"output","Package":"talf/a","Output":"FAIL\ttalf/a\t2.010s\n"}
{"Action":"fail","Package":"talf/a","Elapsed":2.01}
{"Action":"pass","Package":"talf/b","Test":"TestY"}
{"Action":"output","Package":"talf/b","Output":"ok  \ttalf/b\t2.010s\n"}
{"Action":"pass","Package":"talf/b","Elapsed":2.01}
`
	const want = "panic: test timed out after 2s\nFAIL\ttalf/a\t2.010s\nok  \ttalf/b\t2.010s\n"
	var got strings.Builder
	c, err := print(strings.NewReader(events), &got)
	if err != nil || got.String() != want || c.tests != 2 {
		t.Errorf("%d tests, %v, output %q, want 2 tests and %q", c.tests, err, got.String(), want)
	}
}

func TestNothingRanIsSaid(t *testing.T) {
	c, err := print(strings.NewReader(""), &strings.Builder{})
	if err != nil || c.String() != "no test ran" {
		t.Errorf("%q, %v", c, err)
	}
}
