package command

import (
	"io"
	"path/filepath"
	"slices"

	"talf/internal/durable"
	"talf/internal/plot"
)

// checkPlot refuses a picture in a format that cannot be drawn or in a place that cannot be
// written. The directories in made will exist by the time it is drawn.
func checkPlot(path string, made ...string) error {
	if path == "" {
		return nil
	}
	if plot.CheckName(path) != nil {
		return usagef("--plot is %q, want a name that ends in .png or .svg", path)
	}
	if slices.ContainsFunc(made, func(dir string) bool { return filepath.Dir(path) == filepath.Clean(dir) }) {
		return nil
	}
	return durable.Writable(path)
}

// saveFigures draws figures to a file, completely or not at all. If path is empty, it does
// nothing.
func saveFigures(path string, figures ...plot.Figure) error {
	if path == "" {
		return nil
	}
	return durable.Write(path, func(w io.Writer) error { return plot.Write(w, path, figures) })
}
