// Package mapped opens files as memory-mapped bytes, where the system can map them.
package mapped
