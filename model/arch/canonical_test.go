package arch

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
)

// filled returns a spec in which every field has a value.
func filled() *Spec {
	s := Llama()
	fill(reflect.ValueOf(s).Elem(), 1)
	return s
}

// fill sets every field to a value that depends on by.
func fill(v reflect.Value, by int) {
	for i := range v.NumField() {
		set(v.Field(i), by)
	}
}

func set(x reflect.Value, by int) {
	switch x.Kind() {
	case reflect.Struct:
		fill(x, by)
	case reflect.Bool:
		x.SetBool(by%2 == 1)
	case reflect.String:
		x.SetString(fmt.Sprint("text ", by))
	case reflect.Float32, reflect.Float64:
		x.SetFloat(float64(by))
	case reflect.Int, reflect.Int32:
		x.SetInt(int64(by))
	case reflect.Uint8:
		x.SetUint(uint64(by % 3))
	case reflect.Slice:
		if x.Type().Elem().Kind() == reflect.Struct {
			return // Terms
		}
		x.Set(reflect.MakeSlice(x.Type(), by, by))
	default:
		panic(x.Kind())
	}
}

// Whatever a specification says is in its canonical form: no field may be forgotten.
func TestEveryFieldIsCanonical(t *testing.T) {
	text := func(s *Spec) string {
		raw, err := json.Marshal(s.Canonical())
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	base := text(filled())
	seen := 0
	var change func(path string, at func(*Spec) reflect.Value, v reflect.Type)
	change = func(path string, at func(*Spec) reflect.Value, typ reflect.Type) {
		for i := range typ.NumField() {
			field := func(s *Spec) reflect.Value { return at(s).Field(i) }
			name := path + "." + typ.Field(i).Name
			if typ.Field(i).Type.Kind() == reflect.Struct {
				change(name, field, typ.Field(i).Type)
				continue
			}
			s := filled()
			set(field(s), 2)
			if got := text(s); (got == base) != (name == "Spec.Terms") {
				t.Errorf("%s changed: %s", name, got)
			}
			seen++
		}
	}
	change("Spec", func(s *Spec) reflect.Value { return reflect.ValueOf(s).Elem() }, reflect.TypeFor[Spec]())
	if want := 106; seen != want {
		t.Errorf("%d fields, want %d: the tag of a new one needs \",omitzero\", so that other models keep their identity", seen, want)
	}
}

// The form of a model's specification is part of files, so it must not change.
func TestTheCanonicalFormIsPinned(t *testing.T) {
	s := Llama()
	s.Vocab, s.Hidden, s.Layers, s.Heads, s.KVHeads, s.HeadDim, s.FFN, s.MaxPos, s.BOS, s.EOS = 512, 64, 5, 8, 4, 8, 172, 512, 1, []int32{2}
	got, err := json.Marshal(s.Canonical())
	const want = `{"attention_bias":false,"attention_output_bias":false,"bos_token_id":1,"eos_token_id":[2],"head_dim":8,"hidden_act":"silu",` +
		`"hidden_size":64,"intermediate_size":172,"layer_norm":false,"max_position_embeddings":512,"mlp_bias":false,"model_type":"llama",` +
		`"num_attention_heads":8,"num_hidden_layers":5,"num_key_value_heads":4,"rms_norm_eps":0.00001,"rope_scaling.rope_type":"default",` +
		`"rope_theta":10000,"tie_word_embeddings":false,"use_parallel_residual":false,"vocab_size":512}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want\n%s", got, err, want)
	}
	s.LayerNorm = true
	if c := s.Canonical(); c["layer_norm_eps"] == nil || c["rms_norm_eps"] != nil {
		t.Errorf("with LayerNorm: %s", c)
	}
}
