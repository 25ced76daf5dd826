package datastore

// suffixArray returns the starts of s's suffixes in lexicographic order, by induced sorting in
// linear time (SA-IS: Nong, Zhang and Chan 2009). The values of s are 0..upper. The standard
// library's index/suffixarray sorts bytes only, which would be two to four times as many
// suffixes, and does not export its array.
func suffixArray(s []int32, upper int32) []int32 {
	n := len(s)
	sa := make([]int32, n)
	switch n {
	case 0:
		return sa
	case 1:
		return sa
	}
	// A suffix is S-type if it is less than the next one, L-type otherwise.
	isS := make([]bool, n)
	for i := n - 2; i >= 0; i-- {
		isS[i] = s[i] < s[i+1] || s[i] == s[i+1] && isS[i+1]
	}
	// Within the block of a first value, L-type suffixes come before S-type ones.
	startL := make([]int32, upper+2)
	startS := make([]int32, upper+2)
	for i, v := range s {
		if isS[i] {
			startL[v+1]++
		} else {
			startS[v]++
		}
	}
	for v := int32(0); v <= upper; v++ {
		startS[v] += startL[v]
		startL[v+1] += startS[v]
	}
	at := make([]int32, upper+2)
	// induce sorts all suffixes, given the order of the leftmost S-type ones.
	induce := func(lms []int32) {
		for i := range sa {
			sa[i] = -1
		}
		copy(at, startS)
		for _, d := range lms {
			sa[at[s[d]]] = d
			at[s[d]]++
		}
		copy(at, startL)
		v := s[n-1]
		sa[at[v]] = int32(n - 1)
		at[v]++
		for i := range sa {
			if d := sa[i] - 1; d >= 0 && !isS[d] {
				v := s[d]
				sa[at[v]] = d
				at[v]++
			}
		}
		copy(at, startL)
		for i := n - 1; i >= 0; i-- {
			if d := sa[i] - 1; d >= 0 && isS[d] {
				v := s[d] + 1
				at[v]--
				sa[at[v]] = d
			}
		}
	}

	// Leftmost S-type suffixes, in the order of the text.
	var lms []int32
	for i := 1; i < n; i++ {
		if !isS[i-1] && isS[i] {
			lms = append(lms, int32(i))
		}
	}
	m := len(lms)
	induce(lms)
	if m == 0 {
		return sa
	}
	// No two of them are adjacent, so half of a position identifies the one that starts there.
	number := make([]int32, n/2+1)
	for k, d := range lms {
		number[d/2] = int32(k)
	}
	sorted := make([]int32, 0, m)
	for _, d := range sa {
		if d > 0 && isS[d] && !isS[d-1] {
			sorted = append(sorted, d)
		}
	}
	// Name the substrings between them by rank; equal ones get equal names.
	end := func(d int32) int32 {
		if k := int(number[d/2]) + 1; k < m {
			return lms[k]
		}
		return int32(n)
	}
	names := make([]int32, m)
	name := int32(0)
	for k := 1; k < m; k++ {
		l, r := sorted[k-1], sorted[k]
		endL, endR := end(l), end(r)
		same := endL-l == endR-r
		if same {
			for l < endL && s[l] == s[r] {
				l, r = l+1, r+1
			}
			same = l < int32(n) && r < int32(n) && s[l] == s[r]
		}
		if !same {
			name++
		}
		names[number[sorted[k]/2]] = name
	}
	for k, i := range suffixArray(names, name) {
		sorted[k] = lms[i]
	}
	induce(sorted)
	return sa
}
