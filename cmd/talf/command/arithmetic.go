package command

import (
	"strings"

	"talf/compute"
	"talf/model"
)

// arithmeticOf names what computes m where labels made with it have other last bits
// than those of the CPU and of the weights as they are stored.
func arithmeticOf(m *model.Model, dtype dtypeFlag) string {
	as := strings.ToLower(m.Options().DType.String())
	switch on := m.Device().Arithmetic(); {
	case on != "":
		return on + " " + as
	case dtype != dtypeAuto && m.Options().DType != model.Stored(m.Tensors()):
		return "cpu " + as
	}
	return ""
}

// arithmetic names what trains on dev where its last bits are not the CPU's.
func (o *trainOptions) arithmetic(dev compute.Device) string {
	on := dev.Arithmetic()
	if on == "" {
		return ""
	}
	return on + " " + o.math
}
