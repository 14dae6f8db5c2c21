// Package config reads dsh.toml, the variables and the flags of a command into
// plain structs, and keeps of every value where it came from.
//
// [Load] looks for a file, lays --set, variables and flags over it, holds the
// whole to the contract and gives either a [Config] or all that is wrong with
// it, as [Problems]: one line each, with file, line, key, what is wrong and
// what is allowed. What a build can do is told by its caller, as data, in
// [Support] and [Preset]: the package knows no adapter, engine or policy.
//
// A dsh.toml that is found in the working folder may be a stranger's. It
// counts only after [Trust], which remembers the digests of the file, of the
// modules that it names and of the folder's AGENTS.md.
package config
