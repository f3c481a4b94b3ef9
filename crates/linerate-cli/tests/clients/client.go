// CAFILE PORT VERSION: a body there and back, then a connection that resumes the session.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	pem, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	limit := uint16(tls.VersionTLS13)
	if os.Args[3] == "1.2" {
		limit = tls.VersionTLS12
	}
	config := &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: limit, MaxVersion: limit,
		ClientSessionCache: tls.NewLRUClientSessionCache(4)}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	body := bytes.Repeat([]byte("x"), 3000000)
	var state *tls.ConnectionState
	for i := 0; i < 2; i++ {
		answer, err := client.Post("https://127.0.0.1:"+os.Args[2]+"/echo", "text/plain", bytes.NewReader(body))
		if err != nil {
			panic(err)
		}
		got, err := io.ReadAll(answer.Body)
		if err != nil || !bytes.Equal(got, body) {
			panic(fmt.Sprint(err, len(got)))
		}
		state = answer.TLS
	}
	kind := "full"
	if state.DidResume {
		kind = "resumed"
	}
	fmt.Printf("TLSv%s %s\n", os.Args[3], kind)
}
