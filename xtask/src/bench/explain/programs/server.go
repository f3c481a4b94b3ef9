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
	panic(http.ListenAndServe(":"+os.Args[1], nil))
}
