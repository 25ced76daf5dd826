package paper

// Calibration returns the accuracy of items and their calibration errors over this many bins: by the
// probability of the target's choice and by the largest one, in bins of equal width and, behind
// them, of equal numbers.
func Calibration(items []Item, bins int) (accuracy float64, errors [4]float64) {
	c := countItems(items, placesOf(items, bins), bins)
	return c.accuracy(), [4]float64{c.error(choiceWidth), c.error(maxWidth), c.error(choiceCount), c.error(maxCount)}
}

// SourcesOf returns the draft models that the columns of a view ask.
func SourcesOf(v *View) (names []string) {
	for _, c := range v.cols {
		names = append(names, c.source)
	}
	return names
}
