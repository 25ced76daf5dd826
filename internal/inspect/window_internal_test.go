package inspect

import (
	"testing"

	"talf/model/arch"
)

// Windows are missing where published models of the shape have them and texts can be longer.
func TestMissingWindows(t *testing.T) {
	mistral := func(edit func(*arch.Spec)) *arch.Spec {
		s := &arch.Spec{Arch: "mistral", Hidden: 4096, Layers: 32, KVHeads: 8, FFN: 14336, MaxPos: 32768}
		s.Rope.Type, s.Rope.Theta = "default", 10000
		edit(s)
		return s
	}
	for _, c := range []struct {
		spec *arch.Spec
		want int
	}{
		{mistral(func(*arch.Spec) {}), 4096},
		{mistral(func(s *arch.Spec) { s.Arch = "llama" }), 4096}, // as a GGUF file has it
		{mistral(func(s *arch.Spec) { s.Windows = make([]int, 32); s.Windows[31] = 4096 }), 0},
		{mistral(func(s *arch.Spec) { s.Windows = make([]int, 32) }), 4096},
		{mistral(func(s *arch.Spec) { s.Rope.Theta = 1e6 }), 0},                                  // v0.2
		{mistral(func(s *arch.Spec) { s.Arch, s.Rope.Theta, s.MaxPos = "llama", 5e5, 8192 }), 0}, // Llama 3 8B
		{&arch.Spec{Arch: "llama", Layers: 2, MaxPos: 32768}, 0},
		{&arch.Spec{Arch: "qwen2", Layers: 2, MaxPos: 32768}, 0},
		{&arch.Spec{Arch: "phi3", Layers: 32, MaxPos: 4096}, 2047},
		{&arch.Spec{Arch: "phi3", Layers: 40, MaxPos: 4096}, 2047},
		{&arch.Spec{Arch: "phi3", Layers: 40, MaxPos: 16384}, 0}, // Phi 4
		{&arch.Spec{Arch: "phi3", Layers: 32, MaxPos: 131072}, 0},
		{&arch.Spec{Arch: "starcoder2", Layers: 2, MaxPos: 16384}, 4096},
		{&arch.Spec{Arch: "starcoder2", Layers: 2, MaxPos: 4096}, 0},
		{&arch.Spec{Arch: "gemma2", Layers: 2, MaxPos: 8192}, 4096},
		{&arch.Spec{Arch: "gemma2", Layers: 2, MaxPos: 8192, Windows: []int{4096, 0}}, 0},
		{&arch.Spec{Arch: "gemma3_text", Layers: 2, MaxPos: 32768, Hidden: 1152}, 512},
		{&arch.Spec{Arch: "gemma3_text", Layers: 2, MaxPos: 131072, Hidden: 2560}, 1024},
		{&arch.Spec{Arch: "gpt_oss", Layers: 2, MaxPos: 131072}, 128},
		{&arch.Spec{Arch: "cohere2", Layers: 2, MaxPos: 8192}, 4096},
	} {
		if got := missingWindow(c.spec); got != c.want {
			t.Errorf("%+v: windows of %d are missing, want %d", c.spec, got, c.want)
		}
	}
}
