// Package zoo tests talf on models that people run: see internal/zoo. What they are compared with was
// recorded from llama.cpp and transformers by tools/goldens/zoo.py.
package zoo
