package preprocess

import (
	"cmp"
	"fmt"

	"talf/model"
)

// Products returns the name of the library that computes large products of all copies
// of a target, or "" if the devices compute them themselves or the library may not be
// used. It calls told for every copy with the name of the library, or with the reason
// for not using one. Copies whose products would have different bits are an error.
func Products(copies []*model.Model, library bool, told func(m *model.Model, by string, why error)) (string, error) {
	var first string
	for i, m := range copies {
		by, err := m.Bulk(false)
		if !library || err != nil {
			by = ""
		}
		told(m, by, err)
		if i == 0 {
			first = by
		}
		if by != first {
			return "", fmt.Errorf("large products on %s are by %s, on %s by %s, whose bits differ",
				copies[0].Device().Name(), cmp.Or(first, "the device"), m.Device().Name(), cmp.Or(by, "the device"))
		}
	}
	return first, nil
}
