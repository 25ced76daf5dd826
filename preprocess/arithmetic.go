package preprocess

import (
	"strings"

	"talf/model"
)

// Arithmetic names what computes m if labels made with it have other last bits than
// those of the CPU and of the weights as they are stored; else it is "". chosen says
// that the type of the weights was chosen, not taken from how they are stored.
func Arithmetic(m *model.Model, chosen bool) string {
	as := strings.ToLower(m.Options().DType.String())
	switch on := m.Device().Arithmetic(); {
	case on != "":
		return on + " " + as
	case chosen && m.Options().DType != model.Stored(m.Tensors()):
		return "cpu " + as
	}
	return ""
}
