package devices

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Name says which device to use: "cpu", "auto", or a kind and a number such as
// "cuda:0". The empty Name is the CPU. Names are values of a command's flags.
type Name string

// CPU and Auto are the names that have no number. Auto is the device with the most
// free memory of the first kind that has one, or the CPU.
const (
	CPU  Name = "cpu"
	Auto Name = "auto"
)

// Help says what a flag of one device takes.
func Help() string {
	return fmt.Sprintf("cpu, %s, or auto: the %s with most free memory, if there is one", numbered(":N"), docs())
}

// HelpAll says what a flag of several devices takes.
func HelpAll() string {
	first := kinds()[0]
	return fmt.Sprintf("cpu, %s, several as %s,%s, %s, or auto: the %s with most free memory, if there is one",
		numbered(":N"), first.device(0), first.device(1), numbered(":all"), docs())
}

func docs() string {
	var all []string
	for _, k := range kinds() {
		all = append(all, k.api+" device")
	}
	return strings.Join(all, " or ")
}

// numbered lists the kinds, each with a suffix.
func numbered(suffix string) string {
	var all []string
	for _, k := range kinds() {
		all = append(all, k.name+suffix)
	}
	return strings.Join(all, ", ")
}

func (k *kind) device(ordinal int) Name { return Name(fmt.Sprintf("%s:%d", k.name, ordinal)) }

// Type names the values, for help.
func (n *Name) Type() string { return "device" }

func (n *Name) String() string {
	if *n == "" {
		return string(CPU)
	}
	return string(*n)
}

// Set parses a device. A kind without a number is its first device.
func (n *Name) Set(s string) error {
	if slices.ContainsFunc(kinds(), func(k kind) bool { return k.name == s }) {
		s += ":0"
	}
	if name := Name(s); name == CPU || name == Auto || name.Remote() {
		*n = name
		return nil
	}
	return fmt.Errorf("want cpu, auto or %s, N being 0 for the first device", numbered(":N"))
}

// find returns the kind that n is of and its number. It reports false for the CPU and
// for names that mean nothing before Resolve.
func (n Name) find() (k kind, ordinal int, ok bool) {
	name, number, ok := strings.Cut(string(n), ":")
	if !ok {
		return k, 0, false
	}
	i, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return k, 0, false
	}
	for _, k := range kinds() {
		if k.name == name {
			return k, int(i), true
		}
	}
	return k, 0, false
}

// Remote reports whether n names a device with memory of its own, which the CPU is
// not. What "auto" means is known after Resolve.
func (n Name) Remote() bool {
	_, _, ok := n.find()
	return ok
}

// Resolve returns n, or the device that "auto" means here and now.
func (n Name) Resolve() Name {
	if n != Auto {
		return n
	}
	for _, k := range kinds() {
		if i := k.roomiest(); i >= 0 {
			return k.device(i)
		}
	}
	return CPU
}

// Names are devices that work side by side: one Name, all devices of a kind such as
// "cuda:all", or numbered devices with commas between them. Empty is the CPU. Names are
// values of a command's flags.
type Names []Name

// Type names the values, for help.
func (n *Names) Type() string { return "devices" }

func (n *Names) String() string {
	var all []string
	for i := range *n {
		all = append(all, (*n)[i].String())
	}
	if len(all) == 0 {
		return string(CPU)
	}
	return strings.Join(all, ",")
}

// everyOf returns the kind that n means all devices of.
func (n Name) everyOf() (k kind, ok bool) {
	for _, k := range kinds() {
		if string(n) == k.name+":all" {
			return k, true
		}
	}
	return k, false
}

// Set parses devices.
func (n *Names) Set(s string) error {
	if _, ok := Name(s).everyOf(); ok {
		*n = Names{Name(s)}
		return nil
	}
	var all Names
	parts := strings.Split(s, ",")
	for _, p := range parts {
		var one Name
		if err := one.Set(strings.TrimSpace(p)); err != nil || len(parts) > 1 && !one.Remote() {
			return fmt.Errorf("want cpu, auto, %s, or %s, of which there may be several with commas between them, N being 0 for the first device", numbered(":all"), numbered(":N"))
		}
		if slices.Contains(all, one) {
			return fmt.Errorf("%s is there twice", one)
		}
		all = append(all, one)
	}
	*n = all
	return nil
}

// Resolve returns the devices that are meant here, at least one. Several must be the
// same model of device: others round differently.
func (n Names) Resolve() (Names, error) {
	if len(n) == 0 {
		return Names{CPU}, nil
	}
	all := slices.Clone(n)
	if k, ok := n[0].everyOf(); ok {
		r := k.report()
		all = all[:0]
		for _, d := range r.Devices {
			if d.Reason == "" {
				all = append(all, d.Device)
			}
		}
		if len(all) == 0 {
			reason := r.Reason
			if reason == "" {
				reason = "none of its devices can be used: talf doctor says why"
			}
			return nil, fmt.Errorf("%s: %s", n[0], reason)
		}
	}
	if len(all) == 1 {
		return Names{all[0].Resolve()}, nil
	}
	var infos []*Info
	for _, name := range all {
		if i := name.info(); i != nil { // opening it says that there is none
			infos = append(infos, i)
		}
	}
	return all, alike(infos)
}

// alike reports two devices that are different models.
func alike(all []*Info) error {
	for _, x := range all {
		if a := all[0]; x.Name != a.Name || x.Capability != a.Capability {
			return fmt.Errorf("%s is %s and %s is %s, which round differently: take devices of one model, or give each model a set of its own", a.Device, a.Name, x.Device, x.Name)
		}
	}
	return nil
}

// info returns what is known of a numbered device, nil if there is none.
func (n Name) info() *Info {
	k, ordinal, ok := n.find()
	if !ok {
		return nil
	}
	if r := k.report(); ordinal < len(r.Devices) {
		return &r.Devices[ordinal]
	}
	return nil
}

// ActBits is the number of bits of the activations that q8 and q4 weights are multiplied by: 8
// or 16, or 0, which depends on the weights. It is the value of a command's flag.
type ActBits int

// PlanesHelp is the help of --act-planes.
const PlanesHelp = "on a CUDA device with --dtype bf16, bfloat16 planes of the activations that weights are multiplied by: 2 for 16 bits, or 1 for 8 and half of the work of reading prompts and labelling; bits of results depend on it"

// ActPlanes is the number of bfloat16 planes of the activations that bf16 weights are multiplied by on a GPU: 1, or 2, which 0
// stands for. It is the value of a command's flag.
type ActPlanes int

// Type names the kind of value for the help of a flag.
func (p *ActPlanes) Type() string { return "planes" }

func (p *ActPlanes) String() string { return strconv.Itoa(cmp.Or(int(*p), 2)) }

// Set reads a number of planes.
func (p *ActPlanes) Set(s string) error {
	switch s {
	case "1":
		*p = 1
	case "2":
		*p = 2
	default:
		return errors.New("want 1 or 2")
	}
	return nil
}

// Type names the kind of value for the help of a flag.
func (b *ActBits) Type() string { return "bits" }

func (b *ActBits) String() string {
	if *b == 0 {
		return "auto"
	}
	return strconv.Itoa(int(*b))
}

// Set reads a number of bits.
func (b *ActBits) Set(s string) error {
	switch s {
	case "auto":
		*b = 0
	case "8":
		*b = 8
	case "16":
		*b = 16
	default:
		return errors.New("want 8 or 16, or auto")
	}
	return nil
}
