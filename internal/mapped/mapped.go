// Package mapped opens files whose bytes are read where they lie.
package mapped
