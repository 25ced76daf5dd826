// Package ptxdriver lets the emulated driver run the embedded PTX in package ptxtest instead of the
// kernels that g++ compiled, in the process that has loaded that driver.
package ptxdriver
