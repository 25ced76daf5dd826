// Package tensorboard writes the figures of a run as TensorBoard reads them: files of scalars.
//
// A file is a list of records as TensorFlow's tf_record format has them: the length of the data in
// 8 bytes, its checksum, the data, their checksum, all little endian. A checksum is a CRC-32C c,
// masked as rotate(c, 15 to the right) + 0xa282ead8. The data are an Event of TensorFlow's
// event.proto.
package tensorboard

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"time"

	"talf/internal/durable"
	"talf/internal/vfs"
	"talf/train"
)

// Kind is the name of these files among kinds of logs.
const Kind = "tensorboard"

// Known refuses kinds of logs that New does not write. "" is none.
func Known(kind string) error {
	if kind != "" && kind != Kind {
		return fmt.Errorf("log is %q, want %s", kind, Kind)
	}
	return nil
}

// A Log writes the steps of one process to a file of its own, which begins with the first of
// them: TensorBoard then drops what files of earlier processes say of this step and later ones.
// A nil Log writes nothing.
type Log struct {
	dir  string
	warn func(string)
	now  func() time.Time
	file *vfs.File
	buf  []byte
	done bool // failed or closed
}

// New returns a log in the directory of a run, or nil if kind is "". The first error goes to
// warn, and ends the log but not the run.
func New(kind, dir string, warn func(string)) *Log {
	if kind == "" {
		return nil
	}
	return &Log{dir: dir, warn: warn, now: time.Now}
}

// Step writes the figures of a step. They appear at once.
func (l *Log) Step(p train.Progress) {
	if l == nil || l.done {
		return
	}
	err := l.begin(p.Step)
	if err == nil {
		err = l.write(p)
	}
	if err != nil {
		l.done = true
		if l.file != nil {
			err = errors.Join(err, l.file.Close())
		}
		l.warn(fmt.Sprintf("no further figures for TensorBoard: %v", err))
	}
}

// Close ends the log.
func (l *Log) Close() {
	if l == nil || l.done {
		return
	}
	l.done = true
	if l.file == nil {
		return
	}
	if err := errors.Join(l.file.Sync(), l.file.Close()); err != nil {
		l.warn(fmt.Sprintf("figures for TensorBoard: %v", err))
	}
}

// begin creates the file, whose first events are its version and the start of a session.
func (l *Log) begin(step int) error {
	if l.file != nil {
		return nil
	}
	if err := durable.MakeDirs(l.dir); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	at := l.now()
	for n := 0; l.file == nil; n++ { // TensorBoard reads files in the order of their names
		name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", at.Unix(), filepath.Base(cmp.Or(host, "localhost")), os.Getpid(), n)
		l.file, err = vfs.CreateNew(filepath.Join(l.dir, name))
		if err != nil && (!errors.Is(err, os.ErrExist) || n == 1000) {
			return err
		}
	}
	const start = 1 // SessionLog.START
	l.buf = record(l.buf[:0], text(l.event(nil, 0), eventVersion, "brain.Event:2"))
	l.buf = record(l.buf, message(l.event(nil, step), eventSession, varint(nil, sessionStatus, start)))
	_, err = l.file.Write(l.buf)
	return err
}

// write appends one event with all figures of a step.
func (l *Log) write(p train.Progress) error {
	var sum []byte
	scalar := func(tag string, v float64) {
		sum = message(sum, summaryValue, fixed32(text(nil, valueTag, tag), valueSimple, math.Float32bits(float32(v))))
	}
	scalar("train/loss", p.Loss)
	scalar("train/learning_rate", p.LR)
	scalar("train/grad_norm", p.Norm)
	scalar("train/stage", float64(p.Stage+1))
	if p.Seconds > 0 {
		scalar("train/positions_per_second", float64(p.Positions)/p.Seconds)
	}
	if e := p.Eval; e != nil {
		scalar("eval/loss", e.Loss)
		if e.Tau > 0 {
			scalar("eval/tau", e.Tau)
			scalar("eval/tau_greedy", e.TauGreedy)
		}
		for i, x := range e.Levels {
			scalar(fmt.Sprintf("eval/level_%d/loss", i), x.Loss)
			scalar(fmt.Sprintf("eval/level_%d/top1", i), x.Top1)
		}
	}
	l.buf = record(l.buf[:0], message(l.event(nil, p.Step), eventSummary, sum))
	_, err := l.file.Write(l.buf)
	return err
}

// Numbers of fields in event.proto and summary.proto.
const (
	eventTime, eventStep, eventVersion, eventSummary, eventSession = 1, 2, 3, 5, 7
	sessionStatus                                                  = 1
	summaryValue                                                   = 1
	valueTag, valueSimple                                          = 1, 2
)

// event begins an Event: its time, and its step unless that is 0.
func (l *Log) event(dst []byte, step int) []byte {
	dst = append(dst, eventTime<<3|1) // 64 bits
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(float64(l.now().UnixMicro())/1e6))
	if step == 0 {
		return dst
	}
	return varint(dst, eventStep, uint64(step))
}

// Fields of protocol buffers, appended to a message.

func varint(dst []byte, field int, v uint64) []byte {
	return binary.AppendUvarint(append(dst, byte(field<<3)), v)
}

func message(dst []byte, field int, m []byte) []byte {
	return append(binary.AppendUvarint(append(dst, byte(field<<3|2)), uint64(len(m))), m...)
}

func text(dst []byte, field int, s string) []byte { return message(dst, field, []byte(s)) }

func fixed32(dst []byte, field int, v uint32) []byte {
	return binary.LittleEndian.AppendUint32(append(dst, byte(field<<3|5)), v)
}

// record appends data as a record of a file.
func record(dst, data []byte) []byte {
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(data)))
	dst = binary.LittleEndian.AppendUint32(append(dst, length[:]...), masked(length[:]))
	return binary.LittleEndian.AppendUint32(append(dst, data...), masked(data))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the checksum of b as records have it.
func masked(b []byte) uint32 {
	return bits.RotateLeft32(crc32.Checksum(b, castagnoli), -15) + 0xa282ead8
}
