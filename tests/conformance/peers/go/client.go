package main

// A client for one exchange. It writes a line of JSON for each chunk of the
// answer as it opens, and one at the end, with the answer or with what failed.

import (
	"bufio"
	"bytes"
	"crypto/hpke"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const maxResponseBytes = 16 << 20

// asked is what the command line says; flip, keep and key-id spoil the request.
type asked struct {
	keys, gateway                        string
	kem, form, framing                   string
	method, authority, path, contentType string
	date                                 string
	padding                              int
	keyID, flip, keep                    int
}

// report is a line of output.
type report struct {
	Event   string            `json:"event"`
	HTTP    int               `json:"http,omitempty"`
	Outside string            `json:"outside,omitempty"`
	Bytes   int               `json:"bytes,omitempty"`
	Framing int               `json:"framing,omitempty"`
	Status  int               `json:"status,omitempty"`
	Fields  map[string]string `json:"fields,omitempty"`
	Content []byte            `json:"content,omitempty"`
	Error   string            `json:"error,omitempty"`
}

func say(r report) error { return json.NewEncoder(os.Stdout).Encode(r) }

func parseAsked(arguments []string) (*asked, error) {
	a := &asked{}
	set := flag.NewFlagSet("ask", flag.ContinueOnError)
	set.StringVar(&a.keys, "keys", "", "address of the key configurations")
	set.StringVar(&a.gateway, "gateway", "", "address of the gateway")
	set.StringVar(&a.kem, "kem", "xwing", "xwing or x25519")
	set.StringVar(&a.form, "form", "chunked", "chunked or plain")
	set.StringVar(&a.framing, "framing", "known", "known or indeterminate")
	set.StringVar(&a.method, "method", "POST", "of the inner request")
	set.StringVar(&a.authority, "authority", "peer.invalid", "of the inner request")
	set.StringVar(&a.path, "path", "/echo", "of the inner request")
	set.StringVar(&a.contentType, "content-type", "application/json", "of the inner request")
	set.StringVar(&a.date, "date", time.Now().UTC().Format(http.TimeFormat), "of the inner request")
	set.IntVar(&a.padding, "padding", 0, "zeros behind the inner request")
	set.IntVar(&a.keyID, "key-id", -1, "another key identifier than the published one")
	set.IntVar(&a.flip, "flip", -1, "part of the message to flip a bit in")
	set.IntVar(&a.keep, "keep", -1, "parts of the message to send; the rest is cut")
	return a, set.Parse(arguments)
}

// ask runs the exchange; the content of the request comes on standard input.
func ask(arguments []string) error {
	a, err := parseAsked(arguments)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	client := &http.Client{
		Timeout:       60 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	config, err := a.fetchKeys(client)
	if err != nil {
		return say(report{Event: "error", Error: err.Error()})
	}
	if err := a.exchange(client, config, content); err != nil {
		return say(report{Event: "error", Error: err.Error()})
	}
	return nil
}

func (a *asked) fetchKeys(client *http.Client) (*keyConfig, error) {
	response, err := client.Get(a.keys)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	list, err := io.ReadAll(io.LimitReader(response.Body, 16<<10))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/ohttp-keys" {
		return nil, errKeys
	}
	kem := uint16(kemXWing)
	if a.kem == "x25519" {
		kem = kemX25519
	}
	config, err := parseKeys(list, kem)
	if err == nil && a.keyID >= 0 {
		config.id = byte(a.keyID)
	}
	return config, err
}

func (a *asked) inner(content []byte) []byte {
	request := &message{
		framing: knownRequest,
		control: [4]string{a.method, "https", a.authority, a.path},
		fields:  []field{{"content-type", a.contentType}, {"date", a.date}},
		content: content,
	}
	if a.framing == "indeterminate" {
		request.framing = indeterminateRequest
	}
	return append(request.encode(777), make([]byte, a.padding)...)
}

// seal returns the message in parts: header, enc, then what it carries.
func (a *asked) seal(f form, config *keyConfig, content []byte) (parts [][]byte, sender *hpke.Sender, err error) {
	head := header(config.id, config.kem)
	enc, sender, err := hpke.NewSender(config.public, hpke.HKDFSHA256(), hpke.AES128GCM(), f.info(head))
	if err != nil {
		return nil, nil, err
	}
	parts = [][]byte{head, enc}
	if f == chunked {
		chunks, err := sealChunks(a.inner(content), sender.Seal, true)
		return append(parts, chunks...), sender, err
	}
	sealed, err := sender.Seal(nil, a.inner(content))
	return append(parts, sealed), sender, err
}

// spoil returns the body to send: the parts, unless the test wants them changed.
func (a *asked) spoil(parts [][]byte) []byte {
	if a.keep >= 0 {
		parts = parts[:min(a.keep, len(parts))]
	}
	if a.flip >= 0 && a.flip < len(parts) {
		parts[a.flip] = append([]byte{}, parts[a.flip]...)
		parts[a.flip][len(parts[a.flip])-1] ^= 1
	}
	return bytes.Join(parts, nil)
}

func (a *asked) exchange(client *http.Client, config *keyConfig, content []byte) error {
	f := chunked
	if a.form == "plain" {
		f = plain
	}
	parts, sender, err := a.seal(f, config, content)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPost, a.gateway, bytes.NewReader(a.spoil(parts)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", f.requestType)
	request.Header.Set("Incremental", "?1")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body := bufio.NewReader(io.LimitReader(response.Body, maxResponseBytes))
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != f.responseType {
		outside, err := io.ReadAll(body)
		return errors.Join(err, say(report{Event: "refused", HTTP: response.StatusCode, Outside: string(outside)}))
	}
	plaintext, err := openResponse(body, f, sender, parts[1])
	if err != nil {
		return err
	}
	return sayAnswer(plaintext)
}

func openResponse(body *bufio.Reader, f form, sender *hpke.Sender, enc []byte) (plaintext []byte, err error) {
	nonce := make([]byte, respNonceBytes)
	if _, err := io.ReadFull(body, nonce); err != nil {
		return nil, errTruncated
	}
	keys, err := newResponseKeys(sender, f, enc, nonce)
	if err != nil {
		return nil, err
	}
	if f == plain {
		sealed, err := io.ReadAll(body)
		if err != nil {
			return nil, err
		}
		plaintext, err := keys.open(nil, sealed)
		if err != nil {
			return nil, err
		}
		return plaintext, say(report{Event: "chunk", Bytes: len(plaintext)})
	}
	err = openChunks(body, keys.open, func(chunk []byte) error {
		plaintext = append(plaintext, chunk...)
		return say(report{Event: "chunk", Bytes: len(chunk)})
	})
	return plaintext, err
}

func sayAnswer(plaintext []byte) error {
	answer, err := decode(plaintext)
	if err != nil {
		return err
	}
	if answer.isRequest() {
		return errMalformed
	}
	fields := map[string]string{}
	for _, f := range answer.fields {
		fields[f.name] = strings.TrimPrefix(fields[f.name]+", "+f.value, ", ")
	}
	return say(report{
		Event: "answer", HTTP: http.StatusOK, Framing: answer.framing,
		Status: answer.status, Fields: fields, Content: answer.content,
	})
}
