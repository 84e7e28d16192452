package main

// Oblivious HTTP (RFC 9458) and its chunked form (draft-ietf-ohai-chunked-ohttp)
// on the standard library's crypto/hpke. One suite per KEM: HKDF-SHA256 and
// AES-128-GCM, because the standard library gives no other AEAD of the two that
// can be used outside HPKE, as the response needs.

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hpke"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
)

const (
	headerBytes    = 7 // key id, KEM, KDF, AEAD
	keyBytes       = 16
	nonceBytes     = 12
	respNonceBytes = 16 // max(Nn, Nk)
	tagBytes       = 16
	maxChunkBytes  = 1 << 14
	maxSealedBytes = maxChunkBytes + tagBytes

	kemX25519 = 0x0020
	kemXWing  = 0x647a
	kdfID     = 1
	aeadID    = 1
)

var (
	errOpen       = errors.New("ohttp: the message does not open")
	errUnknownKey = errors.New("ohttp: no key has this identifier")
	errTruncated  = errors.New("ohttp: the message ends before its final chunk")
	errTooLong    = errors.New("ohttp: a chunk is too long")
	errKeys       = errors.New("ohttp: the key configurations are malformed")
	errNoKey      = errors.New("ohttp: no key configuration has this KEM")
	errSpent      = errors.New("ohttp: too many chunks")
)

// form is one of the two formats; its labels keep them apart.
type form struct{ request, response, requestType, responseType string }

var (
	plain = form{
		"message/bhttp request", "message/bhttp response",
		"message/ohttp-req", "message/ohttp-res",
	}
	chunked = form{
		"message/bhttp chunked request", "message/bhttp chunked response",
		"message/ohttp-chunked-req", "message/ohttp-chunked-res",
	}
)

func newKEM(id uint16) (kem hpke.KEM, encBytes int, publicBytes int) {
	if id == kemXWing {
		return hpke.MLKEM768X25519(), 1120, 1216
	}
	return hpke.DHKEM(ecdh.X25519()), 32, 32
}

func header(keyID byte, kem uint16) []byte {
	out := binary.BigEndian.AppendUint16([]byte{keyID}, kem)
	out = binary.BigEndian.AppendUint16(out, kdfID)
	return binary.BigEndian.AppendUint16(out, aeadID)
}

func (f form) info(header []byte) []byte {
	return append(append([]byte(f.request), 0), header...)
}

// keyConfig is the public half of a key (RFC 9458, section 3.1).
type keyConfig struct {
	id     byte
	kem    uint16
	public hpke.PublicKey
}

// parseKeys finds the configuration for a KEM in a list (section 3.2). An entry
// with a KEM of no interest is skipped; a broken list is refused as a whole.
func parseKeys(list []byte, kem uint16) (*keyConfig, error) {
	var found *keyConfig
	for len(list) > 0 {
		if len(list) < 2 || len(list)-2 < int(binary.BigEndian.Uint16(list)) {
			return nil, errKeys
		}
		end := 2 + int(binary.BigEndian.Uint16(list))
		entry := list[2:end]
		list = list[end:]
		if len(entry) < 3 {
			return nil, errKeys
		}
		if found != nil || binary.BigEndian.Uint16(entry[1:]) != kem {
			continue
		}
		config, err := parseKey(entry, kem)
		if err != nil {
			return nil, err
		}
		found = config
	}
	if found == nil {
		return nil, errNoKey
	}
	return found, nil
}

func parseKey(entry []byte, id uint16) (*keyConfig, error) {
	kem, _, publicBytes := newKEM(id)
	if len(entry) < 3+publicBytes+2 {
		return nil, errKeys
	}
	suites := entry[3+publicBytes:]
	if int(binary.BigEndian.Uint16(suites)) != len(suites)-2 || len(suites)%4 != 2 {
		return nil, errKeys
	}
	for suites = suites[2:]; len(suites) > 0; suites = suites[4:] {
		if binary.BigEndian.Uint32(suites) == kdfID<<16|aeadID {
			public, err := kem.NewPublicKey(entry[3 : 3+publicBytes])
			return &keyConfig{entry[0], id, public}, err
		}
	}
	return nil, errNoKey
}

// responseKeys are the AEAD key and the nonces of one response (section 4.4).
type responseKeys struct {
	aead    cipher.AEAD
	nonce   []byte
	counter uint64
}

type exporter interface {
	Export(context string, length int) ([]byte, error)
}

func newResponseKeys(context exporter, f form, enc, nonce []byte) (*responseKeys, error) {
	secret, err := context.Export(f.response, respNonceBytes)
	if err != nil {
		return nil, err
	}
	salt := append(append([]byte{}, enc...), nonce...)
	prk, err := hkdf.Extract(sha256.New, secret, salt)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Expand(sha256.New, prk, "key", keyBytes)
	if err != nil {
		return nil, err
	}
	aeadNonce, err := hkdf.Expand(sha256.New, prk, "nonce", nonceBytes)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &responseKeys{aead: aead, nonce: aeadNonce}, err
}

// next returns the nonce of the next chunk: the base nonce XOR its number.
func (k *responseKeys) next() []byte {
	out := append([]byte{}, k.nonce...)
	low := out[nonceBytes-8:]
	binary.BigEndian.PutUint64(low, binary.BigEndian.Uint64(low)^k.counter)
	k.counter++
	return out
}

func (k *responseKeys) seal(aad, plaintext []byte) ([]byte, error) {
	if k.counter == 1<<32 {
		return nil, errSpent
	}
	return k.aead.Seal(nil, k.next(), plaintext, aad), nil
}

func (k *responseKeys) open(aad, ciphertext []byte) ([]byte, error) {
	plaintext, err := k.aead.Open(nil, k.next(), ciphertext, aad)
	if err != nil {
		return nil, errOpen
	}
	return plaintext, nil
}

func newRespNonce() []byte {
	nonce := make([]byte, respNonceBytes)
	rand.Read(nonce) // never fails: the program ends before
	return nonce
}

// sealChunks cuts a message and seals it; the parts alternate between lengths
// and ciphertexts, so that a test can spoil either. The last chunk may be empty.
func sealChunks(data []byte, seal func(aad, plaintext []byte) ([]byte, error), final bool) ([][]byte, error) {
	var parts [][]byte
	for len(data) > maxChunkBytes || !final && len(data) > 0 {
		n := min(len(data), maxChunkBytes)
		sealed, err := seal(nil, data[:n])
		if err != nil {
			return nil, err
		}
		parts = append(parts, appendVarint(nil, uint64(len(sealed))), sealed)
		data = data[n:]
	}
	if !final {
		return parts, nil
	}
	sealed, err := seal([]byte("final"), data)
	return append(parts, []byte{0}, sealed), err
}

// openChunks opens chunks as they arrive and hands each plaintext on at once.
// Only a final chunk ends a message: a body that stops before it was cut.
func openChunks(body *bufio.Reader, open func(aad, ciphertext []byte) ([]byte, error), take func([]byte) error) error {
	for {
		length, err := readVarint(body)
		if err != nil {
			return err
		}
		if length > maxSealedBytes {
			return errTooLong
		}
		aad, sealed := []byte(nil), make([]byte, length)
		if length == 0 {
			aad = []byte("final")
			sealed, err = io.ReadAll(io.LimitReader(body, maxSealedBytes+1))
		} else {
			_, err = io.ReadFull(body, sealed)
		}
		if err != nil {
			return errTruncated
		}
		plaintext, err := open(aad, sealed)
		if err != nil || length > 0 && len(plaintext) == 0 {
			return errOpen
		}
		if err := take(plaintext); err != nil || length == 0 {
			return err
		}
	}
}

func readVarint(body *bufio.Reader) (uint64, error) {
	first, err := body.ReadByte()
	if err != nil {
		return 0, errTruncated
	}
	n := uint64(first & 0x3f)
	for range 1<<(first>>6) - 1 {
		b, err := body.ReadByte()
		if err != nil {
			return 0, errTruncated
		}
		n = n<<8 | uint64(b)
	}
	return n, nil
}
