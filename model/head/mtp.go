package head

import (
	"fmt"
	"strings"

	"talf/model"
	"talf/model/safetensors"
)

// MTP builds a head of the multi-token prediction module that a target's own files hold; see
// arch.Spec.MTPFor. The target's files must stay open.
func MTP(target *model.Model, opt Options) (*Head, error) {
	set := target.Tensors()
	name := set.Name
	has := func(name string) bool { _, ok := set.Describe(name); return ok }
	if !target.Spec().HasMTP(has) {
		return nil, fmt.Errorf("%s: no multi-token prediction module behind the %d layers, such as DeepSeek V3's and GLM 4.5's files have", name, target.Spec().Layers)
	}
	spec, err := target.Spec().MTPFor()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var ts []safetensors.Tensor
	prefix := fmt.Sprintf("model.layers.%d.", target.Spec().Layers)
	for _, n := range set.Names() {
		if strings.HasPrefix(n, prefix) {
			t, _ := set.Tensor(n)
			ts = append(ts, t)
		}
	}
	return FromSet(spec, safetensors.Of(name+": multi-token prediction", ts...), target, opt)
}
