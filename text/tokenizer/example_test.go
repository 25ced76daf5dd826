package tokenizer_test

import (
	"fmt"

	"talf/text/tokenizer"
)

// A tokenizer.json with five tokens: three letters and two merges.
func Example() {
	t, err := tokenizer.Parse([]byte(`{
		"version": "1.0", "added_tokens": [{"id": 5, "content": "<end>", "special": true, "normalized": false}],
		"normalizer": null, "pre_tokenizer": null, "post_processor": null,
		"decoder": {"type": "Fuse"},
		"model": {"type": "BPE", "vocab": {"l": 0, "o": 1, "w": 2, "lo": 3, "low": 4}, "merges": [["l", "o"], ["lo", "w"]]}
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := t.Encode("lowlol<end>", false)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ids)
	fmt.Println(t.Decode(ids, true))

	// A stream returns text as soon as it is certain.
	st := t.NewStream(true)
	for _, id := range ids {
		fmt.Printf("%q ", st.Push(id))
	}
	fmt.Printf("%q\n", st.Flush())
	// Output:
	// [4 3 0 5]
	// lowlol
	// "low" "lo" "l" "" ""
}
