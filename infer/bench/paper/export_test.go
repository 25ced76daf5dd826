package paper

// Calibration returns the accuracy of items and both calibration errors over this many bins.
func Calibration(items []Item, bins int) (accuracy, ece, eceMax float64) {
	c := countItems(items, bins)
	return c.accuracy(), calibration(c.own, c.items), calibration(c.top, c.items)
}

// SourcesOf returns the draft models that the columns of a view ask.
func SourcesOf(v *View) (names []string) {
	for _, c := range v.cols {
		names = append(names, c.source)
	}
	return names
}
