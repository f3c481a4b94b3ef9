// net/http as one would use it: `peer ADDR:PORT`; / at once, /delay/10 after 10 ms.
package main

import (
	"log"
	"net/http"
	"os"
	"time"
)

var hello = []byte("Hello, World!\n")

func answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Write(hello)
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: peer ADDR:PORT")
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { answer(w) })
	http.HandleFunc("/delay/10", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(10 * time.Millisecond)
		answer(w)
	})
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
