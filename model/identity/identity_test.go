package identity_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/model/identity"
)

// function returns a function that each test changes.
func function() *identity.Function {
	return &identity.Function{
		Model: identity.Model{
			Spec:    identity.Spec{"rope_theta": []byte("10000"), "eos_token_id": []byte("[2]"), "hidden_act": []byte(`"silu"`)},
			Tensors: strings.Repeat("ab", 32),
		},
		Weights: "f32", KV: "f32", Activations: "f32", Arithmetic: "cpu",
	}
}

// Files have these hashes: they must never change.
func TestHashesArePinned(t *testing.T) {
	f := function()
	for got, want := range map[string]string{
		f.Hash():       "talf-fn-1:f49f2d81003d0239ea9094a41e1e8af9c692a9c998b8b087e49e3fabca49f00f",
		f.Model.Hash(): "talf-model-1:7d13759d1384aaf1b0c2fb152ac63cd44e53a920ab47be65492b1c24eec7dc59",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := identity.Short(f.Hash()); got != f.Hash()[:len("talf-fn-1:")+12] {
		t.Errorf("short: %s", got)
	}
	if got := identity.Short(strings.Repeat("ab", 32)); got != "abababababab" {
		t.Errorf("short: %s", got)
	}
}

func TestEveryPartIsInTheHash(t *testing.T) {
	seen := map[string]string{}
	for part, change := range map[string]func(*identity.Function){
		"nothing":         func(*identity.Function) {},
		"a value":         func(f *identity.Function) { f.Spec["rope_theta"] = []byte("500000") },
		"a missing value": func(f *identity.Function) { delete(f.Spec, "eos_token_id") },
		"a further value": func(f *identity.Function) { f.Spec["sliding_window"] = []byte("[4]") },
		"tensors":         func(f *identity.Function) { f.Tensors = strings.Repeat("cd", 32) },
		"weights":         func(f *identity.Function) { f.Weights = "q8" },
		"kv":              func(f *identity.Function) { f.KV = "bf16" },
		"activations":     func(f *identity.Function) { f.Activations = "int8" },
		"arithmetic":      func(f *identity.Function) { f.Arithmetic = "cuda sm_90" },
	} {
		f := function()
		change(f)
		if other, ok := seen[f.Hash()]; ok {
			t.Errorf("%s and %s have the same hash", part, other)
		}
		seen[f.Hash()] = part
		if d := f.Against(function()); (d == nil) != (part == "nothing") {
			t.Errorf("%s: differences %v", part, d)
		}
	}
	f := function()
	f.DerivedFrom = "ef"
	if f.Hash() != function().Hash() || f.Against(function()) != nil || f.Model.Hash() != function().Model.Hash() {
		t.Error("what a model is derived from, which nothing proves, identifies it")
	}
}

func TestPartsSurviveJSON(t *testing.T) {
	f := function()
	f.DerivedFrom = "ef"
	for _, form := range []func(any) ([]byte, error){
		json.Marshal, func(v any) ([]byte, error) { return json.MarshalIndent(v, "", "  ") },
	} {
		raw, err := form(f)
		if err != nil {
			t.Fatal(err)
		}
		var back identity.Function
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatal(err)
		}
		if back.Hash() != f.Hash() || back.Against(f) != nil || back.DerivedFrom != "ef" {
			t.Errorf("%s became %+v", raw, back)
		}
		if raw, err = form(&f.Model); err != nil {
			t.Fatal(err)
		}
		var m identity.Model
		if err := json.Unmarshal(raw, &m); err != nil || m.Hash() != f.Model.Hash() || m.Base() != "ef" {
			t.Errorf("%s became %+v, %v", raw, m, err)
		}
	}
	raw, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		"10000":            "10001",
		`"f32"`:            `"q8"`,
		`"id":"talf-fn-1:`: `"id":"talf-fn-2:`,
		`"spec"`:           `"more":1,"spec"`,
	} {
		if err := json.Unmarshal([]byte(strings.Replace(string(raw), from, to, 1)), new(identity.Function)); err == nil {
			t.Errorf("%s in place of %s was accepted", to, from)
		}
	}
	if err := json.Unmarshal([]byte(`{"spec":{}}`), new(identity.Model)); err == nil || !strings.Contains(err.Error(), "talf-model-1:") {
		t.Errorf("a model without a hash: %v", err)
	}
}

func TestDifferencesAreTold(t *testing.T) {
	f := function()
	f.Spec["rope_theta"] = []byte(" 500000 ")
	if got, want := f.Against(function()).Since("the labels were made"), "rope_theta is 500000, the labels were made with 10000"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	delete(f.Spec, "eos_token_id")
	f.Spec["hidden_act"], f.Weights, f.Activations = []byte(`"gelu"`), "q8", ""
	want := "eos_token_id is not set, it was made with [2]; hidden_act is gelu, not silu; rope_theta is 500000, not 10000; and 2 more"
	if got := f.Against(function()).Since("it was made"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	near := function()
	near.Tensors = near.Tensors[:60] + "0000" // beyond what is shown
	d := near.Against(function())
	if len(d) != 1 || d[0].Now == d[0].Then || !strings.Contains(d.Since("it was made"), "the hash of the tensors is") {
		t.Errorf("%v", d)
	}
}

// A head fits the model that it was trained for, however that is quantised.
func TestTies(t *testing.T) {
	trained := &function().Model
	quantised := &identity.Model{Spec: trained.Spec, Tensors: "cd", DerivedFrom: trained.Tensors}
	other := &identity.Model{Spec: function().Spec, Tensors: trained.Tensors}
	other.Spec["rope_theta"] = []byte("500000")
	unrelated := &identity.Model{Spec: trained.Spec, Tensors: "ef"}
	for _, c := range []struct {
		tie    identity.Tie
		target *identity.Model
		want   string
	}{
		{identity.Tie{}, trained, ""},
		{identity.To(trained), trained, ""},
		{identity.To(trained), quantised, ""},
		{identity.To(quantised), trained, ""},
		{identity.To(trained), other, "rope_theta is 500000, it was trained with 10000"},
		{identity.To(trained), unrelated, "the hash of the weights is ef, it was trained with abababababab"},
	} {
		if got := c.tie.Against(c.target.Spec, c.target.Base()).Since("it was trained"); got != c.want {
			t.Errorf("%v: %q, want %q", c.tie, got, c.want)
		}
		meta := map[string]string{}
		c.tie.Metadata(meta)
		back, err := identity.TieOf(meta)
		if err != nil || !cmp.Equal(back, c.tie) || back.Known() != (len(meta) > 0) || back.Base() != meta[identity.MetaOrigin] {
			t.Errorf("%v became %v, %v", c.tie, back, err)
		}
	}
	if _, err := identity.TieOf(map[string]string{identity.MetaModel: "{}"}); err == nil || !strings.Contains(err.Error(), identity.MetaModel) {
		t.Errorf("a damaged tie: %v", err)
	}
}

func FuzzFunction(f *testing.F) {
	raw, err := json.Marshal(function())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var x identity.Function
		if json.Unmarshal(raw, &x) != nil {
			return
		}
		again, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		var y identity.Function
		if err := json.Unmarshal(again, &y); err != nil || y.Hash() != x.Hash() || y.Against(&x) != nil {
			t.Errorf("%s became %s: %v", raw, again, err)
		}
	})
}
