package toolcall

import "slices"

// Name is the name of a format.
func (f *Format) Name() string { return f.name }

// Names lists the formats.
func Names() []string {
	var out []string
	for _, f := range formats {
		out = append(out, f.name)
	}
	return out
}

// Find returns the format of a name, which there is.
func Find(name string) *Format {
	return formats[slices.IndexFunc(formats, func(f *Format) bool { return f.name == name })]
}
