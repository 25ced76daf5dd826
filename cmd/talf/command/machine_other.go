//go:build !linux

package command

// memory is not known on this system.
func memory() (total, available uint64) { return 0, 0 }

// processor is not known on this system.
func processor() string { return "" }
