package seal

import (
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"io"
)

// StreamMagic is how a sealed stream begins. A random salt follows, from which
// and from the key the stream's own key is made, and then pieces of 64 KiB,
// each sealed with its number and with whether it is the last.
const StreamMagic = "dsh-sealed-1\n"

const (
	saltSize  = 32
	pieceSize = 64 << 10
	tagSize   = 16
)

// IsStream reports whether what a file begins with makes it a sealed stream.
func IsStream(begin []byte) bool {
	return len(begin) >= len(StreamMagic) && string(begin[:len(StreamMagic)]) == StreamMagic
}

// nonce is a piece's number and whether it is the last.
func nonce(n uint64, last bool) []byte {
	b := make([]byte, 12)
	binary.BigEndian.PutUint64(b[3:], n)
	if last {
		b[11] = 1
	}
	return b
}

// A Writer seals what is written to it. It is to be closed, which does not
// close what is below it: a stream that was not closed is not opened.
type Writer struct {
	to   io.Writer
	aead cipher.AEAD
	buf  []byte
	n    uint64
	err  error
}

// NewWriter begins a stream.
func NewWriter(key []byte, to io.Writer) (*Writer, error) {
	s := salt()
	aead, err := streamAEAD(key, s)
	if err != nil {
		return nil, err
	}
	if _, err := to.Write(append([]byte(StreamMagic), s...)); err != nil {
		return nil, err
	}
	return &Writer{to: to, aead: aead, buf: make([]byte, 0, pieceSize)}, nil
}

// Write seals whole pieces, and keeps the rest.
func (w *Writer) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 && w.err == nil {
		if len(w.buf) == pieceSize {
			w.flush(false) // there is more, so it is not the last
		}
		n := min(len(p), pieceSize-len(w.buf))
		w.buf = append(w.buf, p[:n]...)
		p = p[n:]
		written += n
	}
	return written, w.err
}

func (w *Writer) flush(last bool) {
	if w.err != nil {
		return
	}
	_, w.err = w.to.Write(w.aead.Seal(nil, nonce(w.n, last), w.buf, nil))
	w.n++
	w.buf = w.buf[:0]
}

// Close writes the last piece.
func (w *Writer) Close() error {
	w.flush(true)
	err := w.err
	if err == nil {
		w.err = errors.New("the stream is closed")
	}
	return err
}

// A Reader opens a stream. Nothing of a piece is given out before all of it was
// found good, and a stream that was cut off ends in an error.
type Reader struct {
	from io.Reader
	aead cipher.AEAD
	in   []byte
	out  []byte
	n    uint64
	last bool
}

// NewReader reads the beginning of a stream.
func NewReader(key []byte, from io.Reader) (*Reader, error) {
	begin := make([]byte, len(StreamMagic)+saltSize)
	if _, err := io.ReadFull(from, begin); err != nil || !IsStream(begin) {
		return nil, ErrOpen
	}
	aead, err := streamAEAD(key, begin[len(StreamMagic):])
	if err != nil {
		return nil, err
	}
	return &Reader{from: from, aead: aead, in: make([]byte, pieceSize+tagSize)}, nil
}

func (r *Reader) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		if r.last {
			return 0, io.EOF
		}
		if err := r.piece(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

func (r *Reader) piece() error {
	n, err := io.ReadFull(r.from, r.in)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return err
	}
	for _, last := range []bool{false, true} {
		if n == len(r.in) || last {
			if r.out, err = r.aead.Open(nil, nonce(r.n, last), r.in[:n], nil); err == nil {
				r.n, r.last = r.n+1, last
				return r.ended()
			}
		}
	}
	return ErrOpen
}

// ended checks that nothing follows the last piece.
func (r *Reader) ended() error {
	if !r.last {
		return nil
	}
	if n, err := r.from.Read(make([]byte, 1)); n > 0 || err != nil && err != io.EOF {
		return ErrOpen
	}
	return nil
}
