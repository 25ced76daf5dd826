package paper

// Calibration returns the accuracy of items and both calibration errors over this many bins.
func Calibration(items []Item, bins int) (accuracy, ece, eceMax float64) {
	c := countItems(items, bins)
	return c.accuracy(), calibration(c.own, c.items), calibration(c.top, c.items)
}
