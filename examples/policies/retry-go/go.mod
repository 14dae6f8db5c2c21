module retry-go

go 1.24
