//go:build !unix

package main

// dying is for the tests that kill a process, which are of unix.
func dying() { panic("no process kills itself here") }
