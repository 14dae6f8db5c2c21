//go:build !unix

package tools

import "os"

// openFlags are the plain ones: there are no pipes among the files here.
const openFlags = os.O_RDONLY
