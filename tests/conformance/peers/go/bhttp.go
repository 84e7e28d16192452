package main

// Binary HTTP (RFC 9292): whole messages, known and indeterminate length.

import (
	"encoding/binary"
	"errors"
	"strings"
)

// Framing indicators (section 3.3).
const (
	knownRequest = iota
	knownResponse
	indeterminateRequest
	indeterminateResponse
)

const maxFields = 128

var (
	errShort     = errors.New("bhttp: the message ends too soon")
	errMalformed = errors.New("bhttp: the message is malformed")
)

type field struct{ name, value string }

// message is a request or a response; its framing says which.
type message struct {
	framing  int
	control  [4]string // of a request: method, scheme, authority, path
	status   int       // of a response
	fields   []field
	content  []byte
	trailers []field
}

func (m *message) isRequest() bool { return m.framing%2 == knownRequest }

func (m *message) isKnown() bool { return m.framing <= knownResponse }

// value returns the first field of that name, or nothing.
func (m *message) value(name string) string {
	for _, f := range m.fields {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// appendVarint appends a variable-length integer (RFC 9000, section 16).
func appendVarint(to []byte, n uint64) []byte {
	switch {
	case n < 1<<6:
		return append(to, byte(n))
	case n < 1<<14:
		return binary.BigEndian.AppendUint16(to, uint16(n)|1<<14)
	case n < 1<<30:
		return binary.BigEndian.AppendUint32(to, uint32(n)|2<<30)
	default:
		return binary.BigEndian.AppendUint64(to, n|3<<62)
	}
}

func appendVector[T string | []byte](to []byte, data T) []byte {
	return append(appendVarint(to, uint64(len(data))), data...)
}

// encodeHead encodes framing, control data and header section.
func (m *message) encodeHead() []byte {
	out := []byte{byte(m.framing)}
	if m.isRequest() {
		for _, part := range m.control {
			out = appendVector(out, part)
		}
	} else {
		out = appendVarint(out, uint64(m.status))
	}
	return m.appendSection(out, m.fields)
}

// encode encodes all of it; indeterminate content goes in pieces of pieceBytes.
func (m *message) encode(pieceBytes int) []byte {
	out := m.encodeHead()
	if m.isKnown() {
		out = appendVector(out, m.content)
		return m.appendSection(out, m.trailers)
	}
	for rest := m.content; len(rest) > 0; {
		n := min(pieceBytes, len(rest))
		out = appendVector(out, rest[:n])
		rest = rest[n:]
	}
	return m.appendSection(append(out, 0), m.trailers)
}

func (m *message) appendSection(to []byte, fields []field) []byte {
	var lines []byte
	for _, f := range fields {
		lines = appendVector(appendVector(lines, f.name), f.value)
	}
	if m.isKnown() {
		return appendVector(to, lines)
	}
	return append(append(to, lines...), 0)
}

// cursor reads a message; after the first error it reads nothing more.
type cursor struct {
	data []byte
	err  error
}

func (c *cursor) take(n uint64) []byte {
	if c.err != nil || n > uint64(len(c.data)) {
		c.fail(errShort)
		return nil
	}
	out := c.data[:n]
	c.data = c.data[n:]
	return out
}

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

func (c *cursor) varint() uint64 {
	first := c.take(1)
	if c.err != nil {
		return 0
	}
	n := uint64(first[0] & 0x3f)
	for _, b := range c.take(1<<(first[0]>>6) - 1) {
		n = n<<8 | uint64(b)
	}
	return n
}

func (c *cursor) vector() []byte { return c.take(c.varint()) }

// decode reads one complete message (sections 3.1, 3.2 and 3.8).
func decode(data []byte) (*message, error) {
	c := &cursor{data: data}
	m := &message{framing: int(c.varint())}
	if m.framing > indeterminateResponse {
		return nil, errMalformed
	}
	if m.isRequest() {
		for i := range m.control {
			m.control[i] = string(c.vector())
		}
	} else {
		m.status = c.status(m)
	}
	m.fields = c.section(m.isKnown())
	// Content and trailers may be left out where nothing follows (section 3.8).
	if len(c.data) > 0 {
		m.content = c.content(m.isKnown())
	}
	if len(c.data) > 0 {
		m.trailers = c.section(m.isKnown())
	}
	for _, b := range c.data {
		if b != 0 {
			c.fail(errMalformed)
		}
	}
	return m, c.err
}

// status skips interim responses, each with its fields, and returns the last.
func (c *cursor) status(m *message) int {
	for range maxFields {
		status := c.varint()
		if c.err != nil || status >= 200 && status <= 599 {
			return int(status)
		}
		if status < 100 || status > 599 {
			break
		}
		c.section(m.isKnown())
	}
	c.fail(errMalformed)
	return 0
}

func (c *cursor) section(known bool) []field {
	within := c
	if known {
		within = &cursor{data: c.vector()}
	}
	var fields []field
	for len(fields) <= maxFields && c.err == nil {
		if known && len(within.data) == 0 {
			return fields
		}
		name := string(within.vector())
		if !known && name == "" && within.err == nil {
			return fields
		}
		value := string(within.vector())
		if within.err != nil || name == "" || name != strings.ToLower(name) || strings.ContainsAny(value, "\r\n\x00") {
			break
		}
		fields = append(fields, field{name, value})
	}
	c.fail(errMalformed)
	return nil
}

func (c *cursor) content(known bool) []byte {
	if known {
		return c.vector()
	}
	var content []byte
	for {
		piece := c.vector()
		if len(piece) == 0 {
			return content
		}
		content = append(content, piece...)
	}
}
