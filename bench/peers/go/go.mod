module linerate/bench/peers

go 1.21
