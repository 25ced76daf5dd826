package score

import (
	"errors"
	"io"
	"testing"

	"talf/compute/cpu"
	"talf/model"
	"talf/model/modeltest"
)

// Scores of a model whose numbers overflow are an error that names the input and the layer.
func TestScoresThatAreNotFinite(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	conf := modeltest.Default()
	m, err := model.New(conf.Spec(), modeltest.Overflowing(conf, 3), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, in := range []Input{{IDs: []int32{7, 3, 8}}, {IDs: []int32{7}, Tree: &Tree{Parents: []int{-1, 0}, Tokens: []int32{3, 8}}}} {
		err = Write(t.Context(), io.Discard, m, nil, []Input{in}, nil)
		var e *model.NonFiniteError
		if !errors.As(err, &e) || e.Layer != 0 {
			t.Errorf("%+v: error %v, want one that names layer 0", in, err)
		}
	}
}
