// Package zoo tests talf on models that people run: see internal/zoo. What they are compared with was
// recorded from llama.cpp and transformers by tools/goldens/zoo.py.
//
//	go test ./internal/e2e/zoo                                       # the two small models, in minutes
//	go test ./internal/e2e/zoo -v -timeout 0 -full -tokens 48        # all four, with every method
package zoo
