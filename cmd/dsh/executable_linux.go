package main

// executable is the program itself, also when its file was replaced since.
func executable() string { return "/proc/self/exe" }
