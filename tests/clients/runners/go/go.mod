module runner

go 1.24

require github.com/penstock/penstock/clients/go v0.0.0

replace github.com/penstock/penstock/clients/go => ../../../../clients/go
