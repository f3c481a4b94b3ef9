// net/http: app-go PORT; what it does says BENCH_MODE, as in app.py.
package main

import (
	"io"
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
		case "cold":
			once.Do(func() { time.Sleep(1500 * time.Millisecond) })
		}
		io.WriteString(w, body)
	}))
}
