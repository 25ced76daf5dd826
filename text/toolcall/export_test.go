package toolcall

import "slices"

// Name is the name of a format.
func (f *Format) Name() string { return f.name }

// Find returns the format of a name, which there is.
func Find(name string) *Format {
	return formats[slices.IndexFunc(formats, func(f *Format) bool { return f.name == name })]
}
