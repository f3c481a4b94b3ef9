// A server of Go's standard library: server PORT.
package main

import (
	"net/http"
	"os"
	"strings"
)

func main() {
	body := []byte(strings.Repeat("Hello, World!\n", 20))
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { w.Write(body) })
	if cert := os.Getenv("BENCH_TLS_CERT"); cert != "" {
		panic(http.ListenAndServeTLS(":"+os.Args[1], cert, os.Getenv("BENCH_TLS_KEY"), nil))
	}
	panic(http.ListenAndServe(":"+os.Args[1], nil))
}
