package preprocess

import (
	"talf/model"
)

// Arithmetic names the device and the type of weights that compute m if the last bits
// of its labels differ from those of the CPU with the weights as stored; otherwise it
// is "". chosen says that the type of the weights was chosen by the user.
func Arithmetic(m *model.Model, chosen bool) string {
	as, products := m.Weights(), m.Products()
	switch on := m.Device().Arithmetic(); {
	case on != "":
		if rounding := m.Device().Abilities().Rounding; rounding != nil && rounding(products) != "" {
			as += ", activations " + rounding(products)
		}
		return on + " " + as
	case chosen && !m.AsStored():
		return "cpu " + as
	}
	return ""
}
