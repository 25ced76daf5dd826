package papers

// SourcesOf returns the draft models that the columns of a view ask.
func SourcesOf(v *View) (names []string) {
	for _, c := range v.cols {
		names = append(names, c.source)
	}
	return names
}
