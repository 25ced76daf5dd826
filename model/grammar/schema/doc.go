// Package schema writes the grammar of the JSON values that a JSON Schema allows.
package schema
