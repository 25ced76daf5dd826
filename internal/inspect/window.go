package inspect

import "talf/model/arch"

// missingWindow returns how many positions layers with a window see in the published models of s's architecture and shape, if
// s has no window and its texts can be longer; otherwise 0. llama.cpp's converter leaves out the windows of Mistral 7B
// v0.1 and StarCoder 2; early files of Gemma 2 and Phi 3 have none, for which llama.cpp assumes the same.
func missingWindow(s *arch.Spec) int {
	for i := range s.Layers {
		if s.Window(i) > 0 {
			return 0
		}
	}
	w := 0
	switch s.Arch {
	case "gemma2", "cohere2", "starcoder2":
		w = 4096
	case "gemma3_text":
		if w = 1024; s.Hidden == 1152 { // 1B
			w = 512
		}
	case "gpt_oss":
		w = 128
	case "phi3": // mini and medium for 4k tokens
		if s.MaxPos == 4096 && (s.Layers == 32 || s.Layers == 40) {
			w = 2047
		}
	case "llama", "mistral": // 7B v0.1: later ones have another base of angles and no window
		if s.Hidden == 4096 && s.Layers == 32 && s.KVHeads == 8 && s.FFN == 14336 && s.MaxPos == 32768 && s.Rope.Type == "default" && s.Rope.Theta == 10000 {
			w = 4096
		}
	}
	if w >= s.MaxPos {
		return 0
	}
	return w
}
