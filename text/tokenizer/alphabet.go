package tokenizer

// byteRunes maps every byte to the printable character that byte-level vocabularies
// write for it. runeBytes is the inverse (-1: not in the alphabet).
var byteRunes, runeBytes = byteAlphabet()

func byteAlphabet() (out [256]string, back [512]int16) {
	for i := range back {
		back[i] = -1
	}
	next := rune(256)
	for b := range rune(256) {
		r := b
		// Printable Latin-1 maps to itself; the rest is moved above 255.
		if !(b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE) {
			r = next
			next++
		}
		out[b] = string(r)
		back[r] = int16(b)
	}
	return out, back
}

// unmapBytes appends the bytes that a byte-level token stands for, or nothing and false if one of
// its characters is not in the alphabet.
func unmapBytes(dst []byte, tok string) ([]byte, bool) {
	n := len(dst)
	for _, r := range tok {
		if int(r) >= len(runeBytes) || runeBytes[r] < 0 {
			return dst[:n], false
		}
		dst = append(dst, byte(runeBytes[r]))
	}
	return dst, true
}
