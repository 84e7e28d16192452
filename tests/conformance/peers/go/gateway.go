package main

// A gateway that is its own target. Its answers are made for the tests:
//
//	/echo   the request's content comes back, in the framing it came in
//	/steps  four pieces; each waits until the test posts to /next
//
// Before decapsulation every failure but an unknown key is one constant 422.

import (
	"bufio"
	"bytes"
	"crypto/hpke"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	maxRequestBytes = 2 << 20
	steps           = 4
	problemKey      = "https://iana.org/assignments/http-problem-types#ohttp-key"
)

type key struct {
	kem      uint16
	private  hpke.PrivateKey
	encBytes int
}

type gateway struct {
	keys map[byte]key
	list []byte
	next chan struct{}
}

// newGateway makes a key for each KEM, X-Wing first. Before both comes an
// entry with a draft's KEM, as one deployed gateway has it: clients skip it.
func newGateway() (*gateway, error) {
	g := &gateway{keys: map[byte]key{}, next: make(chan struct{})}
	g.publish(append([]byte{1, 0x00, 0x30}, make([]byte, 64)...))
	for id, kemID := range map[byte]uint16{7: kemXWing, 8: kemX25519} {
		kem, encBytes, _ := newKEM(kemID)
		private, err := kem.GenerateKey()
		if err != nil {
			return nil, err
		}
		g.keys[id] = key{kemID, private, encBytes}
	}
	for _, id := range []byte{7, 8} {
		k := g.keys[id]
		entry := binary.BigEndian.AppendUint16([]byte{id}, k.kem)
		entry = append(entry, k.private.PublicKey().Bytes()...)
		g.publish(append(entry, 0, 4, 0, kdfID, 0, aeadID))
	}
	return g, nil
}

func (g *gateway) publish(entry []byte) {
	g.list = binary.BigEndian.AppendUint16(g.list, uint16(len(entry)))
	g.list = append(g.list, entry...)
}

func serve() error {
	g, err := newGateway()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/ohttp-keys")
		w.Write(g.list)
	})
	routes.HandleFunc("POST /gateway", g.answer)
	routes.HandleFunc("POST /next", func(http.ResponseWriter, *http.Request) { g.next <- struct{}{} })
	server := http.Server{
		Handler:           routes,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       20 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
	fmt.Printf("{\"listen\":%q}\n", listener.Addr())
	return server.Serve(listener)
}

func refuse(w http.ResponseWriter, status int, kind string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"type":%q,"status":%d}`, kind, status)
}

// opened is a request and what its answer is sealed with.
type opened struct {
	form    form
	context *hpke.Recipient
	enc     []byte
	bhttp   []byte
	chunks  int
}

func (g *gateway) answer(w http.ResponseWriter, r *http.Request) {
	f := chunked
	switch r.Header.Get("Content-Type") {
	case chunked.requestType:
	case plain.requestType:
		f = plain
	default:
		refuse(w, http.StatusUnsupportedMediaType, "about:blank")
		return
	}
	request, err := g.open(f, http.MaxBytesReader(w, r.Body, maxRequestBytes))
	if errors.Is(err, errUnknownKey) {
		refuse(w, http.StatusUnprocessableEntity, problemKey)
		return
	}
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, "about:blank")
		return
	}
	if err := request.reply(w, g); err != nil {
		// The answer has begun: only its end can show that it is incomplete.
		panic(http.ErrAbortHandler)
	}
}

func (g *gateway) open(f form, body io.Reader) (*opened, error) {
	reader := bufio.NewReader(body)
	head := make([]byte, headerBytes)
	if _, err := io.ReadFull(reader, head); err != nil {
		return nil, errOpen
	}
	k, known := g.keys[head[0]]
	if !known {
		return nil, errUnknownKey
	}
	if !bytes.Equal(head, header(head[0], k.kem)) {
		return nil, errOpen
	}
	out := &opened{form: f, enc: make([]byte, k.encBytes)}
	if _, err := io.ReadFull(reader, out.enc); err != nil {
		return nil, errOpen
	}
	context, err := hpke.NewRecipient(out.enc, k.private, hpke.HKDFSHA256(), hpke.AES128GCM(), f.info(head))
	if err != nil {
		return nil, errOpen
	}
	out.context = context
	return out, out.read(reader)
}

func (o *opened) read(body *bufio.Reader) error {
	if o.form == chunked {
		return openChunks(body, o.context.Open, func(plaintext []byte) error {
			o.bhttp = append(o.bhttp, plaintext...)
			o.chunks++
			return nil
		})
	}
	sealed, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	o.chunks = 1
	o.bhttp, err = o.context.Open(nil, sealed)
	return err
}

// reply answers inside the seal, whatever the request says.
func (o *opened) reply(w http.ResponseWriter, g *gateway) error {
	request, err := decode(o.bhttp)
	if err != nil || !request.isRequest() {
		return o.send(w, &message{framing: knownResponse, status: http.StatusBadRequest})
	}
	answer := &message{
		framing: request.framing + 1,
		status:  http.StatusOK,
		fields: []field{
			{"content-type", request.value("content-type")},
			{"x-target", request.control[0] + " " + request.control[1] + " " + request.control[2] + " " + request.control[3]},
			{"x-chunks", strconv.Itoa(o.chunks)},
		},
	}
	switch request.control[3] {
	case "/echo":
		answer.content = request.content
		return o.send(w, answer)
	case "/steps":
		answer.framing = indeterminateResponse
		return o.sendSteps(w, answer, g.next)
	default:
		return o.send(w, &message{framing: answer.framing, status: http.StatusNotFound})
	}
}

func (o *opened) begin(w http.ResponseWriter) (*responseKeys, error) {
	nonce := newRespNonce()
	keys, err := newResponseKeys(o.context, o.form, o.enc, nonce)
	if err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", o.form.responseType)
	if o.form == chunked {
		w.Header().Set("Incremental", "?1")
	}
	_, err = w.Write(nonce)
	return keys, err
}

func (o *opened) send(w http.ResponseWriter, answer *message) error {
	keys, err := o.begin(w)
	if err != nil {
		return err
	}
	if o.form == chunked {
		return writeChunks(w, answer.encode(1000), keys, true)
	}
	sealed, err := keys.seal(nil, answer.encode(1000))
	if err != nil {
		return err
	}
	_, err = w.Write(sealed)
	return err
}

func (o *opened) sendSteps(w http.ResponseWriter, answer *message, next chan struct{}) error {
	keys, err := o.begin(w)
	if err != nil {
		return err
	}
	if err := writeChunks(w, answer.encodeHead(), keys, false); err != nil {
		return err
	}
	for i := range steps {
		select {
		case <-next:
		case <-time.After(20 * time.Second):
			return errTruncated
		}
		piece := appendVector(nil, fmt.Sprintf("step %d\n", i))
		if err := writeChunks(w, piece, keys, false); err != nil {
			return err
		}
	}
	return writeChunks(w, []byte{0, 0}, keys, true)
}

func writeChunks(w http.ResponseWriter, data []byte, keys *responseKeys, final bool) error {
	parts, err := sealChunks(data, keys.seal, final)
	if err != nil {
		return err
	}
	if _, err := w.Write(bytes.Join(parts, nil)); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}
