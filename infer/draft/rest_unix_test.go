//go:build unix

package draft_test

import (
	"os"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/tree"
)

// A datastore that another program cuts short fails the drafter, which says why.
func TestRetrievalFailsIfItsFileIsCutShort(t *testing.T) {
	text := coins(3000)
	file := storeFile(t, 2, text)
	d := open(t, "rest:"+file, draft.Env{}).New()
	if err := d.Start(text[:9]); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 128); err != nil {
		t.Fatal(err)
	}
	p := infer.Proposal{Tree: tree.New(text[8], 20), Pos: 8, MaxNodes: 20, MaxDepth: 5}
	if _, err := d.Grow(&p, nil, nil); err == nil || !strings.Contains(err.Error(), "datastore "+file) {
		t.Errorf("%v, want an error that names the datastore", err)
	}
}
