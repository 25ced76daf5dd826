// Package mapped opens files as memory-mapped bytes, if the system can map them.
package mapped
