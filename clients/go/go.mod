module github.com/penstock/penstock/clients/go

go 1.24
