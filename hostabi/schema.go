package hostabi

import (
	"embed"
	"io/fs"
)

//go:embed schema/*.json
var schemas embed.FS

// The names of the schemas, one a payload. They are of JSON Schema 2020-12.
const (
	SchemaRecoverInput = "recover-input.json"
	SchemaStepInput    = "step-input.json"
	SchemaDecision     = "decision.json"
	SchemaStepAnswer   = "step-answer.json"
	SchemaConfigAnswer = "config-answer.json"
	SchemaManifest     = "manifest.json"

	SchemaLogRead       = "log-read.json"
	SchemaLogAnswer     = "log-answer.json"
	SchemaSurfaceRead   = "surface-read.json"
	SchemaSurfaceAnswer = "surface-answer.json"
	SchemaStateGet      = "state-get.json"
	SchemaStateAnswer   = "state-answer.json"
	SchemaStatePut      = "state-put.json"
	SchemaPutAnswer     = "put-answer.json"
	SchemaEmit          = "emit.json"
	SchemaEmitAnswer    = "emit-answer.json"
	SchemaRefusal       = "refusal.json"
	SchemaHostCall      = "host-call.json"
)

// Schemas returns the files of all schemas, by name.
func Schemas() fs.FS {
	dir, err := fs.Sub(schemas, "schema")
	if err != nil { // the name of a folder that is there
		return schemas
	}
	return dir
}
