module produce

go 1.19
