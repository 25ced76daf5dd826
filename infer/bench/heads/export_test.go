package heads

// Calibration returns the accuracy of items and their calibration errors over this many bins: by the
// probability of the target's choice and by the largest one, in bins of equal width and, behind
// them, of equal numbers.
func Calibration(items []Item, bins int) (accuracy float64, errors [4]float64) {
	c := countItems(items, placesOf(items, bins), bins)
	return c.Accuracy(), [4]float64{c.Error(ChoiceWidth), c.Error(MaxWidth), c.Error(ChoiceCount), c.Error(MaxCount)}
}
