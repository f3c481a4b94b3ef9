// net/http: app-go PORT; what it does says BENCH_MODE, as in app.py.
package main

import (
	"io"
	"math/rand"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

func main() {
	body := strings.Repeat("Hello, World!\n", 20)
	var once sync.Once
	http.ListenAndServe("0.0.0.0:"+os.Args[1], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch os.Getenv("BENCH_MODE") {
		case "think":
			time.Sleep(100 * time.Millisecond)
		case "varied":
			time.Sleep(time.Duration(rand.ExpFloat64() * 30e6))
		case "stalls":
			if into := time.Duration(time.Now().UnixNano() % 1e9); into < 250*time.Millisecond {
				time.Sleep(250*time.Millisecond - into)
			}
		case "cold":
			once.Do(func() { time.Sleep(1500 * time.Millisecond) })
		}
		io.WriteString(w, body)
	}))
}
